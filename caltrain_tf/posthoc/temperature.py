"""Temperature scaling, by likelihood or by calibration error.

With d = logits minus the largest of their row, in units of the largest
difference in any row, and b the inverse temperature in these units, the
negative log-likelihood of a row is log(sum(exp(b d))) - b d[label]. It is
convex in b.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import softmax

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

    with a weight of 2 num_bins / N: close to TS for few examples, and to the
    global optimum of SB-ECE for many. (2 NLL, the deviance, grows by the mean
    squared change of the confidences, in units of that variance: a change of
    one standard deviation costs as much as chance adds to SB-ECE^2.)

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
        if likelihood_weight is not None:
            likelihood_weight = checks.number(
                "likelihood_weight", likelihood_weight, low=0, closed=True
            )
        self.likelihood_weight = likelihood_weight

    def _fit(self, data):
        if self.objective == "nll":
            self.temperature_ = best_temperature(data)
            return
        passes = Passes(data)
        inverse = passes.without_optimum()
        if inverse is None:
            inverse = self._smallest_error(passes)
        self.temperature_ = float(passes.unit / inverse)

    def _smallest_error(self, passes):
        """The b of the best value on a grid, and then between its points."""
        weight, step = self.likelihood_weight, SMOOTH_STEP
        if self.objective == "hb_ece":
            weight, step = weight or 0.0, JUMPING_STEP
        elif weight is None:
            weight = 2 * self.num_bins / passes.count

        def evaluate(position):
            """The value at log b, its share of the NLL, and the gap."""
            confidence, correct, nll, mass = passes.at(math.exp(position))
            if self.objective == "hb_ece":
                error = error_of_confidence(
                    confidence, correct, self.num_bins, weight=mass
                )
            else:
                error = soft_binned_error(
                    confidence,
                    correct,
                    mass,
                    self.num_bins,
                    self.soft_temperature,
                    self.binning,
                )
            share = weight * np.average(nll, weights=mass)
            gap = np.average(confidence - correct, weights=mass)
            return error**2 + share, share, gap

        start = math.log(passes.most_likely())
        first = evaluate(start)
        values = {start: first[0]}
        for direction in (1, -1):
            position, (_, share, gap) = start, first
            # Away from the most likely b, shares grow, and the gap of mean
            # confidence and accuracy grows with b. No error is below this gap.
            while share + max(direction * gap, 0.0) ** 2 < min(values.values()):
                position += direction * step
                if not math.log(UNIFORM) < position < math.log(SATURATED):
                    break
                values[position], share, gap = evaluate(position)
        best = min(values, key=values.get)
        if best in (min(values), max(values)) and len(values) > 1:
            checks.warn(
                "The calibration error falls up to the last temperature that "
                "was tried."
            )
        if self.objective == "hb_ece":
            fine = np.linspace(best - step, best + step, 81)
            return math.exp(min((best, *fine), key=lambda x: evaluate(x)[0]))
        found = minimize_scalar(
            lambda x: evaluate(x)[0],
            bounds=(best - step, best + step),
            options={"xatol": 1e-7},
        )
        return math.exp(found.x if found.fun <= values[best] else best)

    def _transform(self, logits):
        return logits * logits.dtype.type(1.0 / self.temperature_)

    def _layer(self, **options):
        return layers.Temperature(
            self.temperature_, name="temperature_scaling", **options
        )

    def _check_fitted_values(self):
        checks.number("temperature_", self.temperature_, low=0)


def best_temperature(data):
    """The temperature of the smallest negative log-likelihood."""
    passes = Passes(data)
    inverse = passes.without_optimum() or passes.most_likely(warns=True)
    return float(passes.unit / inverse)


class Passes:
    """What one pass over the data tells, and further passes at a temperature.

    Attributes:
        unit: The largest difference of two logits of a row. Logits are in this
            unit here, so that no sum overflows.
        count: Effective number of examples.
        is_separable: Whether every label has the largest logit of its row.
        slope: Slope of the negative log-likelihood at b = 0, not in units.
    """

    def __init__(self, data):
        self.data = data

        def of_rows(logits, labels):
            largest = logits.max(axis=1).astype(np.float64)
            of_label = inputs.at_class(logits, labels)
            mean = logits.mean(axis=1, dtype=np.float64)
            ranges = largest - logits.min(axis=1)
            return ranges, largest > of_label, mean - of_label

        self.unit, self.is_separable = 0.0, True
        sums = np.zeros(3)
        with np.errstate(over="ignore"):
            for (ranges, is_wrong, slopes), weights in data.each(of_rows):
                self.unit = max(self.unit, ranges.max())
                self.is_separable &= not is_wrong.any()
                sums += weights.sum(), weights @ weights, weights @ slopes
        if self.unit == np.inf:
            raise ValueError(
                "`logits` must not differ by more than the largest float64. "
                "Received: an infinite difference in a row"
            )
        mass, squares, self.slope = sums
        self.count = mass**2 / squares

    def _powers(self, logits, inverse):
        """Differences to the largest logit in units, and exponentials."""
        shifted = logits * logits.dtype.type(1.0 / self.unit)
        shifted -= shifted.max(axis=1, keepdims=True)
        powers = np.exp(shifted * shifted.dtype.type(inverse))
        return shifted, powers, powers.sum(axis=1, dtype=np.float64)

    def derivatives(self, inverse):
        """Slope and curvature of the mean negative log-likelihood at b."""

        def of_rows(logits, labels):
            shifted, powers, total = self._powers(logits, inverse)
            powers *= shifted
            mean = powers.sum(axis=1, dtype=np.float64) / total
            square = np.einsum("ij,ij->i", powers, shifted) / total
            slope = mean - inputs.at_class(shifted, labels)
            return slope, np.maximum(square - mean**2, 0.0)

        return self.data.mean(of_rows)

    def at(self, inverse):
        """Confidence, correctness, NLL and weight of each example at b."""

        def of_rows(logits, labels):
            shifted, _, total = self._powers(logits, inverse)
            of_label = inputs.at_class(shifted, labels).astype(np.float64)
            nll = np.log(total) - inverse * of_label
            return 1.0 / total, shifted.argmax(axis=1) == labels, nll

        return self.data.map(of_rows)

    def without_optimum(self):
        """Warns and returns some b if the data determine none, or None."""
        if self.unit == 0:
            self.unit = 1.0
            self._warn("All logits of each row are equal", 1.0)
            return 1.0
        if not self.is_separable:
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
        self._warn(
            "No example is misclassified, so that 0 would be best", inverse
        )
        return inverse

    def most_likely(self, warns=False):
        """The b of the smallest negative log-likelihood.

        Newton's method in log b, from a temperature of 1. The bracket is halved
        instead where a step leaves it, or steps do not shrink.
        """
        if self.slope >= 0:
            # To three digits, the predictions are uniform.
            inverse = min(1e-3, self.unit)
            if warns:
                self._warn("The logits say nothing about the labels", inverse)
            return inverse
        low, high = math.log(LOWEST), math.log(HIGHEST)
        position = min(max(math.log(self.unit), low), high)
        before, last = math.inf, math.inf
        while last > TOLERANCE:
            inverse = math.exp(position)
            slope, curvature = self.derivatives(inverse)
            low, high = (position, high) if slope < 0 else (low, position)
            change = inverse * curvature
            step = -slope / change if change > 0 else math.inf
            if 2 * abs(step) > before or not low <= position + step <= high:
                step = (low + high) / 2 - position
            position += step
            before, last = last, abs(step)
        return math.exp(position)

    def _warn(self, reason, inverse):
        checks.warn(
            f"{reason}: these data determine no temperature. "
            f"Using {self.unit / inverse:g}."
        )


def soft_binned_error(
    confidence, correct, weight, num_bins, temperature, binning
):
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`.

    With memberships u, confidences c and the accuracy A of a bin,
    sum u (A - c)^2 = A^2 sum u - 2 A sum u c + sum u c^2.
    """
    centres = (np.arange(num_bins) + 0.5) / num_bins
    weight = weight * (len(weight) / weight.sum())
    columns = np.stack(
        [np.ones_like(confidence), confidence, correct, confidence**2]
    )

    def block(i, j):
        distances = confidence[i:j, None] - centres
        member = softmax(-(distances**2) / temperature, axis=1)
        return (weight[i:j] * columns[:, i:j]) @ member

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
