"""Temperature scaling, by likelihood or by calibration error.

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

OBJECTIVES = ("nll", "sb_ece", "hb_ece")
# At these log b predictions are uniform, or all of one class, whatever the
# scale of the logits. b and 1 / b are finite in float32.
LOWEST, HIGHEST = -81.0, 81.0
# How far from the most likely log b a calibration error is computed.
WIDEST = 12.0
# The smallest bin mass that is divided by, as in `losses.sb_ece`.
SMALLEST_MASS = 1e-5


class TemperatureScaling(base.Calibrator):
    """Divides the logits by one number, which keeps the predicted classes.

    The temperature minimises the objective on the given data:

    - `"nll"`: the negative log-likelihood (TS).
    - `"sb_ece"`: the soft-binned calibration error in the l2 norm
      (TS-SB-ECE). `binning="bin"` (equation 11 of the paper) is what the
      hard-binned error measures; `"label"` (equation 12) also counts the spread
      of confidences within a bin, and prefers temperatures that are too small.
    - `"hb_ece"`: the hard-binned error, l2 over bins of equal mass
      (TS-HB-ECE).

    On a few hundred examples the minimum of a calibration error is mostly
    chance: a calibrated network has an SB-ECE^2 of about num_bins / N times the
    variance of correctness, and less at temperatures near 0, where all
    confidences fall into one bin. Therefore `"sb_ece"` minimises

        SB-ECE^2 + likelihood_weight x NLL

    with a weight of 2 num_bins / N: close to TS for few examples, and to the
    global optimum of SB-ECE for many.

    If the data determine no temperature, for instance because no example is
    misclassified, `fit` warns and chooses a finite one.

    Args:
        objective: One of the above.
        num_bins: Number of bins, for `"sb_ece"` and `"hb_ece"`.
        binning: `"bin"` or `"label"`, for `"sb_ece"`.
        soft_temperature: Softness of the bins, for `"sb_ece"`.
        likelihood_weight: Weight of the mean negative log-likelihood beside
            the squared calibration error, >= 0. By default 2 num_bins / N for
            `"sb_ece"`, with the effective N of weighted examples, and 0 for
            `"hb_ece"`.
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
    takes_batches = True

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
        super().__init__(from_probs, multi_label, ignore_class)
        self.objective = checks.choice("objective", objective, OBJECTIVES)
        self.num_bins = checks.count("num_bins", num_bins)
        self.binning = checks.choice("binning", binning, ("bin", "label"))
        self.soft_temperature = checks.number(
            "soft_temperature", soft_temperature, low=0
        )
        self.likelihood_weight = base.number_or_none(
            "likelihood_weight", likelihood_weight
        )

    def _fit(self, data):
        position, is_determined = most_likely(data)
        if is_determined and self.objective != "nll":
            position = self._smallest_error(data, position)
        self.temperature_ = math.exp(-position)

    def _smallest_error(self, data, start):
        """The log b of the best value on a grid, then between its points."""
        is_hard = self.objective == "hb_ece"
        step = 0.02 if is_hard else 0.04

        def evaluate(position):
            """The value, its share of the NLL, and the gap."""
            _, nll, confidence, correct, weight = predict(data, position)
            if is_hard:
                outcomes = inputs.Outcomes(confidence, correct, weight)
                error = binned.calibration_error(outcomes, None, self.num_bins)
            else:
                error = soft_binned_error(
                    confidence,
                    correct,
                    weight,
                    self.num_bins,
                    self.soft_temperature,
                    self.binning,
                )
            factor = self.likelihood_weight
            if factor is None and not is_hard:
                factor = 2 * self.num_bins / effective_count(weight)
            share = (factor or 0.0) * np.average(nll, weights=weight)
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
        found = minimize_scalar(
            lambda x: evaluate(x)[0],
            bounds=(best - step, best + step),
            options={"xatol": 1e-7},
        )
        return found.x if found.fun <= tried[best][0] else best

    def _transform(self, logits):
        return logits * logits.dtype.type(1.0 / self.temperature_)

    def _layer(self, **options):
        return layers.Temperature(
            self.temperature_, name="temperature_scaling", **options
        )


def best_temperature(data):
    """The temperature of the smallest negative log-likelihood."""
    return math.exp(-most_likely(data)[0])


def most_likely(data):
    """The log b of the largest likelihood, and whether there is one."""

    @functools.cache
    def slope(position):
        slopes, *_, weight = predict(data, position)
        return np.average(slopes, weights=weight)

    is_informative = slope(LOWEST) < 0
    if is_informative and slope(HIGHEST) > 0:
        near, far = 0.0, 1.0 if slope(0.0) < 0 else -1.0
        while far * slope(far) < 0:
            near, far = far, 3 * far
        return brentq(slope, near, far, xtol=1e-9), True
    reason = "The logits say nothing about the labels"
    target = 1.001 / data.num_classes
    if is_informative:
        reason = "No example is misclassified, so that 0 would be best"
        # Laplace's rule of succession: the probability that the next prediction
        # is correct after n correct ones.
        count = effective_count(predict(data, 0.0)[-1])
        target = (count + 1) / (count + 2)

    def excess(position):
        _, _, confidence, _, weight = predict(data, position)
        return np.average(confidence, weights=weight) - target

    position = 0.0
    # Ties keep confidences below 1 at any temperature.
    if excess(LOWEST) < 0 < excess(HIGHEST):
        position = brentq(excess, LOWEST, HIGHEST, xtol=1e-6)
    checks.warn(
        f"{reason}: these data determine no temperature. "
        f"Using {math.exp(-position):g}."
    )
    return position, False


def effective_count(weight):
    """The number of equal weights that say as much."""
    shares = weight / weight.sum()
    return 1.0 / (shares @ shares)


def predict(data, position):
    """Slope in b, NLL, confidence, correctness and weight of each example."""
    inverse = math.exp(position)

    def of_rows(logits, labels):
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
        return mean - of_label, nll, 1.0 / total, correct

    return data.map(of_rows)


def soft_binned_error(
    confidence, correct, weight, num_bins, temperature, binning
):
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`."""
    centres = (np.arange(num_bins) + 0.5) / num_bins
    weight = weight * (len(weight) / weight.sum())
    columns = weight * np.stack(
        [np.ones_like(confidence), confidence, correct, confidence**2]
    )

    def block(i, j):
        distances = confidence[i:j, None] - centres
        return columns[:, i:j] @ softmax(-(distances**2) / temperature, axis=1)

    parts = inputs.map_blocks(block, len(confidence), 8 * num_bins)
    mass, confidences, hits, squares = np.sum(parts, axis=0)
    accuracy = hits / np.maximum(mass, SMALLEST_MASS)
    if binning == "bin":
        mean = confidences / np.maximum(mass, SMALLEST_MASS)
        error = np.sum(mass * (accuracy - mean) ** 2)
    else:
        # The sum of u (A - c)^2, with memberships u and confidences c.
        error = np.sum(
            accuracy**2 * mass - 2 * accuracy * confidences + squares
        )
    return np.sqrt(max(error, 0.0) / len(confidence))
