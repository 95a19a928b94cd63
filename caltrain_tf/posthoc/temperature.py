"""Temperature scaling, by likelihood or by calibration error, and mixtures.

With d = logits - their maximum, in units of the largest difference in any row,
and b the inverse temperature in these units, the negative log-likelihood of a
row is log(sum(exp(b d))) - b d[label]. It is convex in b.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

from caltrain_tf import checks, inputs, layers
from caltrain_tf.metrics.binned import error_of_confidence
from caltrain_tf.posthoc import base

OBJECTIVES = ("nll", "sb_ece", "hb_ece")
# Inverse temperatures at which predictions are uniform, or all of one class.
UNIFORM, SATURATED = 1e-4, 1e7
# Range of the inverse temperatures of Newton's method, which one row with large
# differences may move far away from 1.
LOWEST, HIGHEST = 1e-9, 1e30
# A Newton step of this relative size leaves an error of about its square.
TOLERANCE = 1e-6
MAX_STEPS = 100
# Distance of the log temperatures at which a calibration error is computed.
SMOOTH_STEP, JUMPING_STEP = 0.04, 0.02
# The smallest bin mass that is divided by, as in `losses.sb_ece`.
SMALLEST_MASS = 1e-5


class TemperatureScaling(base.Calibrator):
    """Divides the logits by one number, which keeps the predicted classes.

    The temperature minimises the objective on the given data:

    - `"nll"`: the negative log-likelihood (TS).
    - `"sb_ece"`: the soft-binned calibration error in the l2 norm
      (TS-SB-ECE). `binning="bin"` (equation 11 of the paper) is the default
      here, because it is what the hard-binned error measures; `"label"`
      (equation 12) also counts the spread of confidences within a bin, and
      therefore prefers temperatures that are too small.
    - `"hb_ece"`: the hard-binned error, l2 over bins of equal mass
      (TS-HB-ECE).

    On a few hundred examples the minimum of a calibration error is mostly
    chance. Even a calibrated network has an SB-ECE^2 of about num_bins / N
    times the variance of correctness, and less at temperatures near 0, where
    all confidences fall into one bin. Therefore `"sb_ece"` minimises

        SB-ECE^2 + likelihood_weight x NLL

    with a weight of 2 num_bins / N. (2 NLL, the deviance, grows by the mean
    squared change of the confidences, in units of that variance: a change of
    one standard deviation costs as much as chance adds to SB-ECE^2.)
    The temperature is close to that of TS for few examples, and to the global
    optimum of SB-ECE for many.

    If the data determine no temperature, for instance because no example is
    misclassified, `fit` warns and chooses a finite one.

    Args:
        objective: One of the above.
        num_bins: Number of bins, for `"sb_ece"` and `"hb_ece"`.
        binning: `"bin"` or `"label"`, for `"sb_ece"`.
        soft_temperature: Softness of the bins, for `"sb_ece"`.
        likelihood_weight: Weight of the mean negative log-likelihood beside
            the squared calibration error, >= 0; 0 gives the global optimum of
            the error alone. By default 2 num_bins / N for `"sb_ece"`, with the
            effective N of weighted examples, and 0 for `"hb_ece"`.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        temperature_: The temperature.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> logits = np.array([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]])
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
        binning="bin",
        soft_temperature=0.01,
        likelihood_weight=None,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(
            from_probs=from_probs,
            multi_label=multi_label,
            ignore_class=ignore_class,
        )
        self.objective = checks.choice("objective", objective, OBJECTIVES)
        self.num_bins = checks.count("num_bins", num_bins)
        self.binning = checks.choice("binning", binning, ("bin", "label"))
        self.soft_temperature = checks.number(
            "soft_temperature", soft_temperature, low=0
        )
        if likelihood_weight is not None:
            likelihood_weight = checks.number(
                "likelihood_weight", likelihood_weight, low=0, closed=True
            )
        self.likelihood_weight = likelihood_weight

    def fit(self, logits, labels=None, sample_weight=None):
        """Fits to predictions and their labels.

        Args:
            logits: Logits of one of the shapes above, or probabilities with
                `from_probs=True`: an array, which may be memory-mapped, a
                tensor, or anything else with `__array__`. Or batches
                `(logits, labels)` or `(logits, labels, sample_weight)`: a
                `tf.data.Dataset`, a list, any other iterable that can be read
                several times, or a function that returns an iterator. They are
                read once for each step of the search, and not kept in memory.
            labels: Class ids, or one-hot rows; left out for batches.
            sample_weight: Weights >= 0, of the examples' shape or of its first
                axes. Only the ratios of weights matter.

        Returns:
            The object itself.
        """
        return super().fit(logits, labels, sample_weight)

    def _read_data(self, logits, labels, sample_weight):
        if labels is not None and not base.is_dataset(logits):
            return super()._read_data(logits, labels, sample_weight)
        for name, value in (
            ("labels", labels),
            ("sample_weight", sample_weight),
        ):
            if value is not None:
                raise ValueError(
                    f"`{name}` must be left out when `logits` holds batches. "
                    f"Received: {name}={type(value).__name__}"
                )
        if not (callable(logits) or base.may_hold_batches(logits)):
            raise ValueError(
                "`labels` must be given unless `logits` is a dataset, or "
                "another iterable, of (logits, labels) batches. "
                f"Received: labels=None, logits={type(logits).__name__}"
            )
        if hasattr(logits, "__next__"):
            raise ValueError(
                "`logits` must be an iterable that can be read several times, "
                "such as a dataset or a list. "
                f"Received: {type(logits).__name__}"
            )
        return base.Data(lambda: self._batches(logits), self.from_probs)

    def _batches(self, batches):
        """Yields the `inputs.Examples` of one pass."""
        if base.is_dataset(batches):
            batches = batches.as_numpy_iterator()
        elif callable(batches):
            batches = batches()
        num_classes = None
        for number, batch in enumerate(batches):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise ValueError(
                    "`logits` must hold (logits, labels) or (logits, labels, "
                    "sample_weight) batches. Received: a batch of type "
                    f"{type(batch).__name__}"
                )
            try:
                examples = self._read(*batch, may_be_empty=True)
            except ValueError as error:
                raise ValueError(f"In batch {number}: {error}") from error
            # While the next batch is read, this one is the only other.
            del batch
            if examples.counts is not None and not examples.counts.any():
                continue
            width = examples.predictions.shape[1]
            if width != (num_classes or width):
                raise ValueError(
                    f"In batch {number}: `logits` must have {num_classes} "
                    f"classes, as before. Received: {width} classes"
                )
            num_classes = width
            yield examples
            del examples

    def _fit(self, data):
        survey = Survey(data)
        inverse = survey.without_optimum()
        if inverse is None and self.objective == "nll":
            inverse = survey.most_likely()
        elif inverse is None:
            inverse = self._smallest_error(survey)
        self.temperature_ = float(survey.unit / inverse)

    def _smallest_error(self, survey):
        weight, step = self.likelihood_weight, SMOOTH_STEP
        if self.objective == "hb_ece":
            weight, step = weight or 0.0, JUMPING_STEP
        elif weight is None:
            weight = 2 * self.num_bins / survey.count

        def evaluate(position):
            """The value at log b, and what it cannot fall below beyond."""
            confidence, correct, nll, weights = survey.at(math.exp(position))
            if self.objective == "hb_ece":
                error = error_of_confidence(
                    confidence, correct, self.num_bins, weight=weights
                )
            else:
                error = soft_binned_error(
                    confidence,
                    correct,
                    weights,
                    self.num_bins,
                    self.soft_temperature,
                    self.binning,
                )
            # No binned error is below |mean confidence - accuracy|, and the
            # confidence grows with b.
            gap = np.average(confidence - correct, weights=weights)
            share = weight * np.average(nll, weights=weights)
            return error**2 + share, (gap, share)

        position = math.log(survey.most_likely(warns=False))
        return math.exp(lowest(evaluate, position, step))

    def _transform(self, logits):
        return logits * logits.dtype.type(1.0 / self.temperature_)

    def _layer(self, **options):
        return layers.Temperature(
            self.temperature_, name="temperature_scaling", **options
        )

    def _check_fitted_values(self):
        checks.number("temperature_", self.temperature_, low=0)


class EnsembleTemperatureScaling(base.Calibrator):
    """Mixes tempered, plain and uniform predictions.

        p = w_1 softmax(logits / T) + w_2 softmax(logits) + w_3 / K

    T is the temperature of temperature scaling. With this T, the weights, which
    are at least 0 and sum to 1, minimise the negative log-likelihood. The
    predicted classes stay the same. Calibrated logits are log p.

    Args:
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        temperature_: The temperature T.
        weights_: The weights w, `(3,)`.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> logits = np.array([[9.0, 0.0], [0.0, 9.0], [1.0, 0.0], [9.0, 0.0]])
        >>> scaler = ct.posthoc.EnsembleTemperatureScaling()
        >>> scaler.fit(logits, [0, 1, 0, 1]).weights_.round(2).tolist()
        [0.0, 0.44, 0.56]

    Reference:
        Zhang et al., "Mix-n-Match: Ensemble and Compositional Methods for
        Uncertainty Calibration in Deep Learning", 2020.
    """

    fitted_names = ("temperature_", "weights_")

    def __init__(
        self, *, from_probs=False, multi_label=False, ignore_class=None
    ):
        super().__init__(
            from_probs=from_probs,
            multi_label=multi_label,
            ignore_class=ignore_class,
        )

    def _fit(self, data):
        self.temperature_ = best_temperature(data)

        def of_label(logits, labels):
            rows = np.arange(len(labels)), labels
            return tuple(
                log_softmax(logits / logits.dtype.type(t), axis=1)[rows]
                for t in (self.temperature_, 1.0)
            )

        tempered, plain, weights = data.map(of_label)
        uniform = np.full_like(plain, -np.log(data.num_classes))
        self.weights_ = mixture_weights(
            np.stack([tempered, plain, uniform]).astype(np.float64), weights
        )

    def _transform(self, logits):
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights_).astype(logits.dtype)
        scale = logits.dtype.type(1.0 / self.temperature_)
        mixed = log_softmax(logits * scale, axis=1) + logs[0]
        np.logaddexp(mixed, log_softmax(logits, axis=1) + logs[1], out=mixed)
        uniform = logs[2] - logits.dtype.type(np.log(logits.shape[1]))
        return np.logaddexp(mixed, uniform, out=mixed)

    def _layer(self, **options):
        return layers.EnsembleTemperature(
            self.temperature_,
            self.weights_,
            name="ensemble_temperature",
            **options,
        )

    def _check_fitted_values(self):
        checks.number("temperature_", self.temperature_, low=0)
        weights = self.weights_
        is_mixture = np.shape(weights) == (3,) and np.min(weights) >= 0
        if not is_mixture or abs(np.sum(weights) - 1) > 1e-6:
            raise ValueError(
                "`weights_` must hold three numbers >= 0 that sum to 1. "
                f"Received: weights_={weights}"
            )


def best_temperature(data):
    """The temperature of the smallest negative log-likelihood."""
    survey = Survey(data)
    inverse = survey.without_optimum() or survey.most_likely()
    return float(survey.unit / inverse)


class Survey:
    """What one pass tells of the data, and further passes at a temperature.

    Attributes:
        unit: The largest difference of two logits of a row. Logits are in this
            unit here, so that no sum overflows.
        count: Effective number of examples.
        separable: Whether every label has the largest logit of its row.
        slope: Slope of the mean negative log-likelihood at b = 0.
        curvature: Its curvature at b = 0.
    """

    def __init__(self, data):
        self.data = data

        def of_rows(logits, labels):
            largest = logits.max(axis=1).astype(np.float64)
            return (
                largest - logits.min(axis=1),
                largest - logits[np.arange(len(labels)), labels],
            )

        self.unit, self.separable, mass, squares = 0.0, True, 0.0, 0.0
        with np.errstate(over="ignore"):
            for (ranges, missing), weights in data.each(of_rows):
                self.unit = max(self.unit, ranges.max())
                self.separable &= not missing.any()
                mass += weights.sum()
                squares += weights @ weights
        if self.unit == np.inf:
            raise ValueError(
                "`logits` must not differ by more than the largest float64. "
                "Received: an infinite difference in a row"
            )
        self.count = mass**2 / squares
        if self.unit:
            _, self.slope, self.curvature = self.likelihood(0.0)

    def shift(self, logits):
        """Logits minus the largest of their row, in units of `unit`."""
        scaled = logits * logits.dtype.type(1.0 / self.unit)
        scaled -= scaled.max(axis=1, keepdims=True)
        return scaled

    def likelihood(self, inverse):
        """Mean negative log-likelihood at b, its slope and its curvature."""

        def of_rows(logits, labels):
            shifted = self.shift(logits)
            of_label = shifted[np.arange(len(labels)), labels]
            powers = np.exp(shifted * shifted.dtype.type(inverse))
            total = powers.sum(axis=1, dtype=np.float64)
            powers *= shifted
            mean = powers.sum(axis=1, dtype=np.float64) / total
            square = np.einsum("ij,ij->i", powers, shifted) / total
            nll = np.log(total) - inverse * of_label.astype(np.float64)
            return nll, mean - of_label, np.maximum(square - mean**2, 0.0)

        return self.data.mean(of_rows)

    def at(self, inverse):
        """Confidence, correctness, NLL and weight of each example at b."""

        def of_rows(logits, labels):
            shifted = self.shift(logits)
            of_label = shifted[np.arange(len(labels)), labels]
            powers = np.exp(shifted * shifted.dtype.type(inverse))
            total = powers.sum(axis=1, dtype=np.float64)
            nll = np.log(total) - inverse * of_label.astype(np.float64)
            return 1.0 / total, shifted.argmax(axis=1) == labels, nll

        return self.data.map(of_rows)

    def without_optimum(self):
        """Warns and returns some b if the data determine none, or None."""
        if self.unit == 0:
            self.unit = 1.0
            self._warn("All logits of each row are equal", 1.0)
            return 1.0
        if not self.separable:
            return None
        # Laplace's rule of succession: the probability that the next prediction
        # is correct after n correct ones.
        target = (self.count + 1) / (self.count + 2)

        def excess(position):
            confidence, _, _, weights = self.at(math.exp(position))
            return np.average(confidence, weights=weights) - target

        low, high = math.log(UNIFORM), math.log(SATURATED)
        # Ties keep confidences below 1 at any temperature.
        inverse = SATURATED
        if excess(high) > 0:
            inverse = math.exp(brentq(excess, low, high, xtol=1e-6))
        reason = "No example is misclassified, so that 0 would be best"
        self._warn(reason, inverse)
        return inverse

    def most_likely(self, warns=True):
        """The b of the smallest negative log-likelihood.

        Newton's method in log b, and bisection of a bracket where a Newton step
        leaves the bracket or steps do not shrink.
        """
        if self.slope >= 0:
            # To three digits, the predictions are uniform.
            inverse = min(1e-3, self.unit)
            if warns:
                self._warn("The logits say nothing about the labels", inverse)
            return inverse
        low, high = math.log(LOWEST), math.log(HIGHEST)
        position = math.log(-self.slope / self.curvature)
        last = step = high - low
        for _ in range(MAX_STEPS):
            inverse = math.exp(position)
            _, slope, curvature = self.likelihood(inverse)
            if slope < 0:
                low = position
            else:
                high = position
            change = inverse * curvature
            before, last = last, step
            step = -slope / change if change > 0 else math.inf
            is_slow = 2 * abs(step) > abs(before)
            if is_slow or not low <= position + step <= high:
                step = (low + high) / 2 - position
            position += step
            if abs(step) < TOLERANCE:
                return math.exp(position)
        if warns:
            checks.warn(
                f"The temperature did not converge in {MAX_STEPS} steps. "
                f"Using {self.unit * math.exp(-position):g}.",
                ConvergenceWarning,
            )
        return math.exp(position)

    def _warn(self, reason, inverse):
        checks.warn(
            f"{reason}: these data determine no temperature. "
            f"Using {self.unit / inverse:g}."
        )


def lowest(evaluate, start, step):
    """The position of the lowest value on a grid, and then between its cells.

    Args:
        evaluate: Function of log b that returns the value and `(gap, share)`.
        start: The most likely log b; on both sides of it, shares rise.
        step: Distance of the grid.
    """
    value, bound = evaluate(start)
    values = {start: value}
    for direction in (1, -1):
        position, (gap, share) = start, bound
        # The gap grows with b: if it grows in this direction, no value beyond
        # is below its square.
        while share + max(direction * gap, 0.0) ** 2 < min(values.values()):
            position += direction * step
            if not math.log(UNIFORM) < position < math.log(SATURATED):
                break
            values[position], (gap, share) = evaluate(position)
    best = min(values, key=values.get)
    if best in (min(values), max(values)) and len(values) > 1:
        checks.warn(
            "The calibration error falls up to the last temperature that was "
            "tried."
        )
    if step == JUMPING_STEP:
        fine = np.linspace(best - step, best + step, 81)
        return min((best, *fine), key=lambda x: evaluate(x)[0])
    found = minimize_scalar(
        lambda x: evaluate(x)[0],
        bounds=(best - step, best + step),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return found.x if found.fun <= values[best] else best


def soft_binned_error(
    confidence, correct, weight, num_bins, temperature, binning
):
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`.

    Both kinds of bins need only the sums of u, u c, u a and u c^2 over the
    examples, where u is the membership, c the confidence and a is 1 for a
    correct prediction. For a bin of accuracy A,
    sum u (A - c)^2 = A^2 sum u - 2 A sum u c + sum u c^2.
    """
    centres = (np.arange(num_bins) + 0.5) / num_bins
    weight = weight * (len(weight) / weight.sum())

    def block(start, stop):
        c, a = confidence[start:stop], correct[start:stop]
        member = softmax(-((c[:, None] - centres) ** 2) / temperature, axis=1)
        columns = np.stack([np.ones_like(c), c, a, c * c])
        return (weight[start:stop] * columns) @ member

    parts = inputs.map_blocks(block, len(confidence), 8 * num_bins)
    mass, confidences, hits, squares = np.sum(parts, axis=0)
    divisor = np.maximum(mass, SMALLEST_MASS)
    if binning == "bin":
        error = np.sum((hits - confidences) ** 2 * mass / divisor**2)
    else:
        accuracy = hits / divisor
        error = np.sum(
            accuracy**2 * mass - 2 * accuracy * confidences + squares
        )
    return np.sqrt(max(error, 0.0) / len(confidence))


def mixture_weights(logs, counts):
    """The weights `(parts,)` of the most likely mixture.

    Args:
        logs: Logarithms of the probabilities that each part gives to the
            labels, `(parts, N)`.
        counts: The weights of the examples, `(N,)`.
    """
    # A factor per example does not matter, and this one prevents underflow.
    parts = np.exp(logs - logs.max(axis=0))
    counts = counts / counts.sum()

    def value_and_gradient(weights):
        mixed = np.maximum(weights @ parts, np.finfo(float).tiny)
        return -counts @ np.log(mixed), -parts @ (counts / mixed)

    found = minimize(
        value_and_gradient,
        np.full(len(parts), 1.0 / len(parts)),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(parts),
        constraints={
            "type": "eq",
            "fun": lambda weights: np.sum(weights) - 1.0,
            "jac": np.ones_like,
        },
        options={"ftol": 1e-12, "maxiter": 500},
    )
    if not found.success:
        checks.warn(
            f"The weights of the mixture did not converge: {found.message}.",
            ConvergenceWarning,
        )
    weights = np.clip(found.x, 0.0, 1.0)
    return weights / weights.sum()
