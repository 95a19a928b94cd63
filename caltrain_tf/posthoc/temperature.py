"""Temperature scaling by likelihood or by calibration error.

With d = logits - their maximum and b = 1/temperature, the sums of exp(b d),
d exp(b d) and d^2 exp(b d) over a row give the logarithm of its normaliser, and
the slope and curvature of this logarithm in b (`row_moments`). The following
steps need only these three numbers for each row:

1. `survey` checks the values and finds data that determine no temperature.
2. `most_likely` minimises the negative log-likelihood, which is convex in b, by
   Newton's method on its slope. It steps in log b, where the scale of the
   logits does not matter. Most steps use a sample of the rows; the full data
   need about three passes.
3. `Search` minimises a calibration error plus a share of the negative
   log-likelihood, a sum that has several local minima.

Sums over a row are in the logits' precision, sums over rows in float64.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from caltrain_tf import checks, layers
from caltrain_tf.inputs import map_blocks
from caltrain_tf.metrics.binned import error_of_confidence
from caltrain_tf.posthoc.base import Calibrator

OBJECTIVES = ("nll", "sb_ece", "hb_ece")
SHORT_ROW = 32
# Number of rows on which Newton's method finds its start.
SAMPLE_ROWS = 512
# Range of inverse temperatures, times the spread of the logits. At the ends the
# predictions are uniform, or all of one class, in float32.
LOWEST, HIGHEST = 1e-6, 1e6
# A step of this relative size leaves an error of about its square.
TOLERANCE = 1e-6
MAX_STEPS = 100
# Ratio of the inverse temperatures, or nodes, at which `Search` passes over the
# logits.
NODE_RATIO = 1.25
# Number of temperatures that are tried between two nodes. A hard-binned error
# jumps wherever two examples change places, and needs more of them.
SMOOTH_GRID, JUMPING_GRID = 12, 60
# Distance in log b from a minimum within which its last digits are found.
FOCUS = 0.01
# The smallest bin mass that is divided by, as in `losses.sb_ece`.
SMALLEST_MASS = 1e-5
# Largest exponent that is far from overflowing float64.
LARGEST_EXPONENT = 600.0


class TemperatureScaling(Calibrator):
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

    def _fit(self, rows):
        view = survey(rows)
        if self.objective == "nll":
            inverse = most_likely(rows, view)
        else:
            inverse = without_optimum(rows, view)
            if inverse is None:
                inverse = self._smallest_error(rows, view)
        self.temperature_ = 1.0 / inverse

    def _smallest_error(self, rows, view):
        weight = self.likelihood_weight
        if self.objective == "sb_ece":
            error = partial(
                soft_binned_error,
                num_bins=self.num_bins,
                temperature=self.soft_temperature,
                binning=self.binning,
            )
            if weight is None:
                weight = 2 * self.num_bins / view.count
            search = Search(rows, view, error, weight, SMOOTH_GRID)
            position = search.lowest_of_smooth_error()
        else:
            error = partial(error_of_confidence, num_bins=self.num_bins)
            search = Search(rows, view, error, weight or 0.0, JUMPING_GRID)
            position = search.lowest_of_jumping_error()
        if not search.is_inside(position):
            checks.warn(
                "The calibration error falls up to the last temperature that "
                f"was tried. Using {math.exp(-position):g}."
            )
        return math.exp(position)

    def _transform(self, logits):
        return logits * logits.dtype.type(1.0 / self.temperature_)

    def _layer(self, **options):
        return layers.Temperature(
            self.temperature_, name="temperature_scaling", **options
        )

    def _check_fitted_values(self):
        checks.number("temperature_", self.temperature_, low=0)


class Survey(NamedTuple):
    """Statistics of the rows from the first pass."""

    weight: float  # Sum of the weights.
    count: float  # Effective number of rows.
    separable: bool  # Whether every label has the largest logit of its row.
    spread: float  # Root mean square of logit - largest logit of the row.
    slope: float  # Mean slope of the negative log-likelihood at b = 0.
    curvature: float  # Its mean curvature at b = 0.


def survey(rows):
    """Checks the values of all rows and returns their `Survey`."""

    def block(logits, labels, weights):
        shifted = shift(logits)
        of_label = label_logits(shifted, labels)
        mean = np.einsum("ij->i", shifted).astype(np.float64) / rows.num_classes
        square = np.einsum("ij,ij->i", shifted, shifted).astype(np.float64)
        square /= rows.num_classes
        squares = len(labels) if weights is None else weights @ weights
        return (
            squares,
            total(np.ones(len(labels)), weights),
            np.count_nonzero(of_label),
            total(square, weights),
            total(mean - of_label, weights),
            total(square - mean**2, weights),
        )

    sums = rows.sum(block, check=True)
    squares, weight, wrong, square, slope, curvature = sums
    if not np.isfinite(square):
        raise ValueError(
            "`logits` must not differ by more than the square root of the "
            f"largest number of their type. Received: squares up to {square}"
        )
    return Survey(
        weight,
        weight**2 / squares,
        wrong == 0,
        math.sqrt(square / weight),
        slope / weight,
        curvature / weight,
    )


def total(values, weights):
    """The weighted sum of values of rows; weights may be None."""
    return np.sum(values) if weights is None else weights @ values


def shift(logits):
    """Logits minus the largest of their row."""
    return logits - row_max(logits)[:, None]


def label_logits(shifted, labels):
    """The logits of the labels, in float64."""
    return shifted[np.arange(len(labels)), labels].astype(np.float64)


def row_max(logits):
    """The largest logit of each row."""
    if logits.shape[1] > SHORT_ROW:
        return logits.max(axis=1)
    # A loop over columns costs less than NumPy's loop over short rows.
    largest = logits[:, 0].copy()
    for column in logits.T[1:]:
        np.maximum(largest, column, out=largest)
    return largest


def row_moments(shifted, inverse):
    """`(log_sum, mean, variance)` of each row at temperature 1/`inverse`."""
    weighted = shifted * shifted.dtype.type(inverse)
    np.exp(weighted, out=weighted)
    # einsum is faster than sum(axis=1) on short rows and as fast on long ones.
    powers = np.einsum("ij->i", weighted).astype(np.float64)
    weighted *= shifted
    mean = np.einsum("ij->i", weighted) / powers
    square = np.einsum("ij,ij->i", weighted, shifted) / powers
    return np.log(powers), mean, np.maximum(square - mean**2, 0.0)


def without_optimum(rows, view):
    """An inverse temperature for data that determine none, or None.

    Warns and returns a finite value if every logit of a row is the same, or if
    no example is misclassified: then the best temperature would be 0.
    """
    if view.spread == 0:
        _warn_of_chosen("All logits of each row are equal", 1.0)
        return 1.0
    if view.separable:
        inverse = _succession(rows, view)
        _warn_of_chosen(
            "No example is misclassified, so that 0 would be best", inverse
        )
        return inverse
    return None


def _succession(rows, view):
    """The inverse temperature of a mean confidence of (n + 1) / (n + 2).

    This is Laplace's rule of succession: the probability that the next
    prediction is correct, after n correct ones.
    """
    target = (view.count + 1) / (view.count + 2)

    def excess(position):
        def block(logits, labels, weights):
            log_sum, _, _ = row_moments(shift(logits), math.exp(position))
            return total(np.exp(-log_sum), weights)

        return rows.sum(block) / view.weight - target

    low = math.log(LOWEST / view.spread)
    high = math.log(HIGHEST / view.spread)
    # Ties keep confidences below 1 at any temperature.
    if excess(high) < 0:
        return math.exp(high)
    return math.exp(brentq(excess, low, high, xtol=1e-6))


def _warn_of_chosen(reason, inverse):
    checks.warn(
        f"{reason}: these data determine no temperature. Using {1 / inverse:g}."
    )


def most_likely(rows, view):
    """The inverse temperature of the smallest negative log-likelihood."""
    inverse = without_optimum(rows, view)
    if inverse is not None:
        return inverse
    if view.slope >= 0:
        # To three digits, the predictions are uniform.
        inverse = 1e-3 / view.spread
        _warn_of_chosen("The logits say nothing about the labels", inverse)
        return inverse
    inverse = _newton(rows, first_guess(rows, view), view, TOLERANCE)
    if inverse >= HIGHEST / view.spread:
        _warn_of_chosen(
            "The data are all but free of misclassifications", inverse
        )
    return inverse


def first_guess(rows, view):
    """An inverse temperature close to the most likely one, from a sample."""
    guess = abs(view.slope) / view.curvature if view.curvature else 1.0
    guess = guess or 1.0 / view.spread
    sample = rows.sample(SAMPLE_ROWS)
    if sample is rows:
        return guess
    inverse = _newton(sample, guess, view, tolerance=1e-2)
    lowest, highest = LOWEST / view.spread, HIGHEST / view.spread
    return inverse if 10 * lowest < inverse < highest / 10 else guess


def _newton(rows, inverse, view, tolerance):
    """The root of the slope of the likelihood, from a starting point."""
    low = math.log(LOWEST / view.spread)
    high = math.log(HIGHEST / view.spread)
    position = min(max(math.log(inverse), low), high)
    for _ in range(MAX_STEPS):
        inverse = math.exp(position)
        slope, curvature = likelihood(rows, inverse)[1:]
        if slope < 0:
            low = position
        else:
            high = position
        change = inverse * curvature
        # Without curvature the step is long, and the bracket limits it.
        step = -slope / change if change > 0 else math.inf
        step = math.copysign(min(abs(step), 2.0), -slope)
        if not low <= position + step <= high:
            step = (low + high) / 2 - position
        position += step
        if abs(step) < tolerance:
            return math.exp(position)
    checks.warn(
        f"The temperature did not converge in {MAX_STEPS} steps. "
        f"Using {math.exp(-position):g}.",
        ConvergenceWarning,
    )
    return math.exp(position)


def likelihood(rows, inverse):
    """Sums of the negative log-likelihood and its two derivatives in b."""

    def block(logits, labels, weights):
        shifted = shift(logits)
        of_label = label_logits(shifted, labels)
        log_sum, mean, variance = row_moments(shifted, inverse)
        return (
            total(log_sum - inverse * of_label, weights),
            total(mean - of_label, weights),
            total(variance, weights),
        )

    return rows.sum(block)


class Search:
    """`error^2 + weight x NLL` as a function of log b, and its lowest value.

    A calibration error has several local minima in the temperature. Three facts
    make a search for the lowest one cheap and certain:

    - By Jensen's inequality every binned error is at least |mean confidence -
      accuracy|, and the mean confidence falls with the temperature.
    - The negative log-likelihood is convex in b: where it rises, it continues
      to rise. Where these two bounds are above the best value so far, no better
      value lies beyond, which proves on both sides that the search can end.
    - Between temperatures of ratio 1.25, confidences are interpolated to about
      1e-5, and to float32 at a ratio of 1.02, where the search ends
      (`Tempered`). Trying a temperature needs no pass over the logits.
    """

    def __init__(self, rows, view, error, weight, grid):
        """Tries temperatures, `grid` per node, until none can be better."""
        self.rows, self.error, self.weight = rows, error, weight
        self.tried = {}
        step = math.log(NODE_RATIO)
        middle = math.log(first_guess(rows, view))
        # Beyond these numbers of nodes, confidences hardly change.
        most_below = math.ceil((middle - math.log(1e-4 / view.spread)) / step)
        most_above = math.ceil((math.log(1e5 / view.spread) - middle) / step)
        below = above = 2
        while True:
            low, high = middle - below * step, middle + above * step
            self.tempered = Tempered(rows, low, high, below + above)
            self._try(
                middle + step * i / grid
                for i in range(-below * grid, above * grid + 1)
            )
            nodes = below, above
            if below < most_below and self._may_fall(low, low + step):
                below = min(2 * below, most_below)
            if above < most_above and self._may_fall(high, high - step):
                above = min(2 * above, most_above)
            if nodes == (below, above):
                break

    def __call__(self, position):
        """Returns the value at log b = `position`."""
        at = self.tempered
        confidence = at.confidence(position)
        error = self.error(confidence, at.correct, weight=at.weights)
        return error**2 + self._share(position)

    def is_inside(self, position):
        """Whether the value was seen to rise on both sides of `position`."""
        return min(self.tried) < position < max(self.tried)

    def lowest_of_smooth_error(self):
        """The log b of the lowest value, by descent into the lowest valleys."""
        rough, exact = {"xatol": FOCUS / 10}, {"xatol": 1e-7}
        found = [
            minimize_scalar(self, bounds=valley, options=rough)
            for valley in self._valleys(3)
        ]
        ends = self._focus(min(found, key=lambda result: result.fun).x)
        return minimize_scalar(self, bounds=ends, options=exact).x

    def lowest_of_jumping_error(self):
        """The log b of the lowest value, by two finer grids."""

        def finest(brackets, count):
            grids = (np.linspace(*bracket, count) for bracket in brackets)
            return min(np.concatenate(list(grids)), key=self)

        ends = self._focus(finest(self._valleys(5), 21))
        return finest([ends], 101)

    def _share(self, position):
        """The share of the negative log-likelihood."""
        return self.weight * self.tempered.likelihood(position)

    def _may_fall(self, end, inner):
        """Whether a better value is possible beyond an end of the grid."""
        share, gap = self._share(end), self.tempered.gap(end)
        bound = share if share >= self._share(inner) else 0.0
        # Confidences grow with b.
        if (gap > 0) == (end > inner):
            bound += gap**2
        return bound < min(self.tried.values())

    def _try(self, positions):
        bounds = {
            x: self.tempered.gap(x) ** 2 + self._share(x)
            for x in positions
            if x not in self.tried
        }
        best = min(self.tried.values(), default=math.inf)
        for x in sorted(bounds, key=bounds.get):
            # Where even the bound is not better, the value is not needed.
            self.tried[x] = self(x) if bounds[x] < best else bounds[x]
            best = min(best, self.tried[x])

    def _valleys(self, count):
        """Brackets `(low, high)` of the grid's `count` lowest minima."""
        x, y = np.array(sorted(self.tried.items())).T
        padded = np.concatenate([[math.inf], y, [math.inf]])
        minima = np.flatnonzero((y <= padded[:-2]) & (y <= padded[2:]))
        lowest = minima[np.argsort(y[minima], kind="stable")[:count]]
        last = len(x) - 1
        return [(x[max(i - 1, 0)], x[min(i + 1, last)]) for i in lowest]

    def _focus(self, position):
        """Interpolates more exactly, close to `position` only."""
        ends = position - FOCUS, position + FOCUS
        self.tempered = Tempered(self.rows, *ends, 1)
        return ends


class Tempered:
    """Confidences and the likelihood of all rows in a range of temperatures.

    The log-normaliser of a row is a smooth function of log b. One pass gives
    its value, slope (b mean) and curvature (b^2 variance + b mean) at a few
    nodes. Between two nodes it is the quintic with these six values.
    """

    # Rows: value, slope and curvature at 0, then at 1. Columns: coefficients of
    # 1, t, ..., t^5 in the quintic for which this quantity is 1 and the other
    # five are 0.
    # fmt: off
    QUINTIC = np.array([
        [1, 0, 0, -10, 15, -6], [0, 1, 0, -6, 8, -3],
        [0, 0, 0.5, -1.5, 1.5, -0.5], [0, 0, 0, 10, -15, 6],
        [0, 0, 0, -4, 7, -3], [0, 0, 0, 0.5, -1, 0.5],
    ])
    # fmt: on

    def __init__(self, rows, low, high, num_parts):
        """Passes over rows at `num_parts` + 1 log b from `low` to `high`.

        The attributes `correct` and `weights` (None if they are equal) are in
        the same order as the confidences.
        """
        self.low, self.num_parts = low, num_parts
        self.step = (high - low) / num_parts
        inverses = np.exp(np.linspace(low, high, num_parts + 1))

        def block(logits, labels, weights):
            shifted = shift(logits)
            if weights is None:
                weights = np.ones(len(labels))
            moments = [row_moments(shifted, inverse) for inverse in inverses]
            correct = logits.argmax(axis=1) == labels
            return correct, weights, label_logits(shifted, labels), moments

        parts = zip(*rows.map(block), strict=True)
        self.correct, weights, of_label, nodes = (
            np.concatenate(part, axis=-1) for part in parts
        )
        self.weights = None if np.all(weights == weights[0]) else weights
        # From here on `nodes` has value, slope and curvature in log b / step.
        nodes[:, 1] *= inverses[:, None] * self.step
        nodes[:, 2] *= (inverses[:, None] * self.step) ** 2
        nodes[:, 2] += self.step * nodes[:, 1]
        self.log_sums = nodes
        self.mean_log_sum = self._mean(nodes)
        self.mean_label = self._mean(of_label)
        self.accuracy = self._mean(self.correct)

    def _mean(self, values):
        return np.average(values, axis=-1, weights=self.weights)

    def _interpolate(self, nodes, position):
        place = (position - self.low) / self.step
        left = min(max(int(place), 0), self.num_parts - 1)
        factors = self.QUINTIC @ (place - left) ** np.arange(6)
        pair = nodes[left : left + 2]
        return factors @ pair.reshape(6, *pair.shape[2:])

    def confidence(self, position):
        """Confidences of all rows at log b = `position`."""
        log_sum = self._interpolate(self.log_sums, position)
        return np.minimum(np.exp(-log_sum), 1.0)

    def likelihood(self, position):
        """Mean negative log-likelihood."""
        log_sum = self._interpolate(self.mean_log_sum, position)
        return log_sum - math.exp(position) * self.mean_label

    def gap(self, position):
        """Mean confidence - accuracy; no error is below its absolute value."""
        return self._mean(self.confidence(position)) - self.accuracy


def soft_binned_error(
    confidence, correct, num_bins, temperature, binning, weight=None
):
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`.

    Both kinds of bins need only the sums of u, u c, u a and u c^2 over the
    examples, where u is the membership, c the confidence and a is 1 for a
    correct prediction. For a bin of accuracy A,
    sum u (A - c)^2 = A^2 sum u - 2 A sum u c + sum u c^2.
    """
    count = len(confidence)
    if weight is not None:
        weight = weight * (count / weight.sum())

    def block(start, stop):
        c, a = confidence[start:stop], correct[start:stop]
        member = memberships(c, num_bins, temperature)
        share = 1.0 / member.sum(axis=0)
        if weight is not None:
            share *= weight[start:stop]
        columns = np.stack([share, share * c, share * a, share * c * c])
        return columns @ member.T

    row_bytes = confidence.itemsize * num_bins
    sums = np.sum(map_blocks(block, count, row_bytes), axis=0)
    mass, confidences, hits, squares = sums
    divisor = np.maximum(mass, SMALLEST_MASS)
    if binning == "bin":
        error = np.sum((hits - confidences) ** 2 * mass / divisor**2)
    else:
        accuracy = hits / divisor
        error = np.sum(
            accuracy**2 * mass - 2 * accuracy * confidences + squares
        )
    return np.sqrt(max(error, 0.0) / count)


def memberships(confidence, num_bins, temperature):
    """exp(-(c - m)^2 / t) up to a factor per example, `(bins, N)`.

    With the centres m = 1/2 + k w it is, up to such a factor,
    exp(-(k w)^2 / t) q^k with q = exp(2 (c - 1/2) w / t): one exponential
    per example instead of one per example and bin.
    """
    offsets = (np.arange(num_bins) + 0.5) / num_bins - 0.5
    centred = confidence - 0.5
    if max(0.5, 1 / num_bins) / temperature > LARGEST_EXPONENT:
        square = (centred - offsets[:, None]) ** 2
        return np.exp((square.min(axis=0) - square) / temperature)
    powers = np.empty((num_bins, len(confidence)))
    np.exp(centred * (2.0 * offsets[0] / temperature), out=powers[0])
    ratio = np.exp(centred * (2.0 / num_bins / temperature))
    for k in range(1, num_bins):
        np.multiply(powers[k - 1], ratio, out=powers[k])
    powers *= np.exp(-(offsets**2) / temperature)[:, None]
    return powers
