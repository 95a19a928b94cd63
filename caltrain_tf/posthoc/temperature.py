"""Temperature scaling, by likelihood or calibration error.

The negative log-likelihood is convex in b = 1 / temperature. Searches are over
log b.
"""

import functools
import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import softmax

from caltrain_tf import checks, inputs, layers
from caltrain_tf.metrics import binned
from caltrain_tf.posthoc import base

# At these log b predictions are uniform, or all of one class, whatever the
# scale of the logits. b and 1 / b are finite in float32.
LOWEST, HIGHEST = -81.0, 81.0
# How far from the most likely log b a calibration error is computed.
WIDEST = 12.0
# The temperature of soft bins, and the smallest bin mass that is divided by.
SOFTNESS, SMALLEST_MASS = 0.01, 1e-5


class TemperatureScaling(base.Calibrator):
    """Divides the logits by one number, which keeps the predicted classes.

    The temperature minimises the objective on the given data:

    - `"nll"`: the negative log-likelihood (TS).
    - `"sb_ece"`: SB-ECE^2 + likelihood_weight x NLL (TS-SB-ECE), with the
      soft-binned error of equation 11 of the paper: `losses.sb_ece` with
      `binning="bin"`, in the l2 norm and with a temperature of 0.01.
    - `"hb_ece"`: the hard-binned error, l2 over bins of equal mass (TS-HB-ECE).

    On a few hundred examples the minimum of SB-ECE alone is mostly chance; the
    default weight stays close to TS there. If the data determine no
    temperature, for instance because no example is misclassified, `fit` warns
    and chooses a finite one.

    Args:
        objective: One of the above.
        num_bins: Number of bins, for `"sb_ece"` and `"hb_ece"`.
        likelihood_weight: Weight >= 0 of the NLL beside the squared error. By
            default 2 num_bins / N for `"sb_ece"`, with the effective N of
            weighted examples, and 0 for `"hb_ece"`.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        temperature_: The temperature.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]]
        >>> scaler = ct.posthoc.TemperatureScaling().fit(logits, [0, 1, 0, 1])
        >>> scaler  # 3 of 4 are right: 4 / log(3)
        TemperatureScaling(temperature_=3.640957)
        >>> scaler.predict_proba(logits)[0].round(4).tolist()
        [0.75, 0.25]

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017;
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, section 5.
    """

    fitted_names = ("temperature_",)

    def __init__(
        self,
        objective="nll",
        *,
        num_bins=15,
        likelihood_weight=None,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_probs, multi_label, ignore_class)
        objectives = "nll", "sb_ece", "hb_ece"
        self.objective = checks.choice("objective", objective, objectives)
        self.num_bins = checks.count("num_bins", num_bins)
        self.likelihood_weight = base.number_or_none(
            "likelihood_weight", likelihood_weight
        )

    def fit(self, logits, labels=None, sample_weight=None):
        """Fits to arrays as other calibrators do, or to batches.

        Args:
            logits: An array, or batches `(logits, labels)` or `(logits, labels,
                sample_weight)`: a `tf.data.Dataset`, a list, any other iterable
                that can be read several times, or a function that returns an
                iterator. They are read once for each step of the search, and
                not kept in memory.
            labels, sample_weight: Left out for batches.

        Returns:
            The calibrator itself.
        """
        is_array = labels is not None or hasattr(logits, "__array__")
        if is_array or not (callable(logits) or hasattr(logits, "__iter__")):
            return super().fit(logits, labels, sample_weight)
        if sample_weight is not None or hasattr(logits, "__next__"):
            raise ValueError(
                "`logits` must be batches with their weights that can be read "
                "several times, such as a dataset or a list. "
                f"Received: {type(logits).__name__}"
            )
        self._search(lambda: self._batches(logits))
        return self

    def _batches(self, batches):
        """Yields the logits, labels and weights of one pass."""
        batches, sizes = batches() if callable(batches) else batches, set()
        for number, batch in enumerate(batches):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise ValueError(
                    "`logits` must hold (logits, labels) or (logits, labels, "
                    "sample_weight) batches. Received: a batch of type "
                    f"{type(batch).__name__}"
                )
            try:
                examples = self._read(*batch, may_be_empty=True)
                predictions, ids = examples.whole()
            except ValueError as error:
                raise ValueError(f"In batch {number}: {error}") from error
            if len(ids):
                sizes.add(predictions.shape[1])
                weights = examples.weight
                weights = np.ones(len(ids)) if weights is None else weights
                yield base.to_logits(predictions, self.from_probs), ids, weights
        if len(sizes) != 1:
            raise ValueError(
                "`logits` must hold at least one batch with an example that "
                "counts, and all batches the same number of classes. "
                f"Received: {sorted(sizes)} classes"
            )
        (self.num_classes_,) = sizes

    def _fit(self, *arrays):
        self._search(lambda: [arrays])

    def _search(self, read):
        position, is_determined = most_likely(read)
        if is_determined and self.objective != "nll":
            position = self._smallest_error(read, position)
        self.temperature_ = math.exp(-position)

    def _smallest_error(self, read, start):
        """The log b of the best value on a grid, then between its points."""
        is_hard = self.objective == "hb_ece"
        step = 0.02 if is_hard else 0.04

        def evaluate(position):
            """The value, its share of the NLL, and the gap."""
            _, nll, *outcomes = predict(read, position)
            confidence, correct, weight = outcomes = inputs.Outcomes(*outcomes)
            if is_hard:
                error = binned.calibration_error(outcomes, None, self.num_bins)
                factor = 0.0
            else:
                error = soft_binned_error(*outcomes, self.num_bins)
                factor = 2 * self.num_bins / effective_count(weight)
            if self.likelihood_weight is not None:
                factor = self.likelihood_weight
            share = factor * np.average(nll, weights=weight)
            gap = np.average(confidence - correct, weights=weight)
            return error**2 + share, share, gap

        # To both sides of the most likely log b, as far as a smaller value is
        # possible: the share of the NLL grows, and no error is below the gap of
        # mean confidence and accuracy, which grows with b.
        tried = {start: evaluate(start)}
        for sign in (1, -1):
            position = start
            while abs(position - start) < WIDEST:
                _, share, gap = tried[position]
                if share + max(sign * gap, 0.0) ** 2 >= min(tried.values())[0]:
                    break
                position += sign * step
                tried[position] = evaluate(position)
        best = min(tried, key=tried.get)
        if is_hard:
            fine = np.linspace(best - step, best + step, 81)
            return min((best, *fine), key=lambda x: evaluate(x)[0])
        ends, options = (best - step, best + step), {"xatol": 1e-7}
        found = minimize_scalar(
            lambda x: evaluate(x)[0], bounds=ends, options=options
        )
        return found.x if found.fun <= tried[best][0] else best

    def _transform(self, logits):
        return logits * logits.dtype.type(1.0 / self.temperature_)

    def _layer(self, **options):
        return layers.Temperature(
            self.temperature_, name="temperature_scaling", **options
        )


def best_temperature(*arrays):
    """The most likely temperature for logits, labels and weights."""
    return math.exp(-most_likely(lambda: [arrays])[0])


def most_likely(read):
    """The log b of the largest likelihood, and whether there is one."""

    @functools.cache
    def slope(position):
        slopes, *_, weight = predict(read, position)
        return np.average(slopes, weights=weight)

    is_informative = slope(LOWEST) < 0
    if is_informative and slope(HIGHEST) > 0:
        near, far = 0.0, 1.0 if slope(0.0) < 0 else -1.0
        while far * slope(far) < 0:
            near, far = far, 3 * far
        return brentq(slope, near, far, xtol=1e-9), True

    def mean_confidence(position):
        _, _, confidence, _, weight = predict(read, position)
        return np.average(confidence, weights=weight)

    reason = "The logits say nothing about the labels"
    target = 1.001 * mean_confidence(LOWEST)
    if is_informative:
        reason = "No example is misclassified, so that 0 would be best"
        # Laplace's rule of succession: the probability that the next prediction
        # is correct after n correct ones.
        count = effective_count(predict(read, 0.0)[-1])
        target = (count + 1) / (count + 2)
    position = 0.0
    # Ties keep confidences below 1 at any temperature.
    if mean_confidence(LOWEST) < target < mean_confidence(HIGHEST):
        position = brentq(
            lambda x: mean_confidence(x) - target, LOWEST, HIGHEST, xtol=1e-6
        )
    checks.warn(
        f"{reason}: these data determine no temperature. "
        f"Using {math.exp(-position):g}."
    )
    return position, False


def effective_count(weight):
    """The number of equal weights that say as much."""
    shares = weight / weight.sum()
    return 1.0 / (shares @ shares)


def predict(read, position):
    """Slope in b, NLL, confidence, correctness and weight of each example."""
    inverse = math.exp(position)

    def of_rows(logits, labels, weights):
        with np.errstate(over="ignore"):
            shifted = logits - logits.max(axis=1, keepdims=True)
            np.maximum(shifted, -inputs.LARGEST_LOGIT, out=shifted)
            powers = np.exp(shifted * shifted.dtype.type(inverse))
        total = powers.sum(axis=1, dtype=np.float64)
        powers *= shifted
        mean = powers.sum(axis=1, dtype=np.float64) / total
        of_label = inputs.at_class(shifted, labels).astype(np.float64)
        nll = np.log(total) - inverse * of_label
        correct = shifted.argmax(axis=1) == labels
        return mean - of_label, nll, 1.0 / total, correct, weights

    parts = []
    for batch in read():
        parts += inputs.map_blocks(
            lambda i, j, batch=batch: of_rows(*(x[i:j] for x in batch)),
            len(batch[1]),
            batch[0][0].nbytes,
        )
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def soft_binned_error(confidence, correct, weight, num_bins):
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`."""
    centres = (np.arange(num_bins) + 0.5) / num_bins
    weight = weight * (len(weight) / weight.sum())
    columns = np.stack([weight, weight * (confidence - correct)])

    def block(i, j):
        distances = confidence[i:j, None] - centres
        return columns[:, i:j] @ softmax(-(distances**2) / SOFTNESS, axis=1)

    parts = inputs.map_blocks(block, len(confidence), 8 * num_bins)
    mass, gaps = np.sum(parts, axis=0)
    error = mass @ (gaps / np.maximum(mass, SMALLEST_MASS)) ** 2
    return np.sqrt(error / len(confidence))
