"""Temperature scaling by likelihood or by calibration error.

With d = logits - their maximum and b = 1/temperature, a row has the sums of
exp(b d), d exp(b d) and d^2 exp(b d). They give the logarithm of its
normaliser, and that function's slope and curvature in b, which are the mean and
the variance of d under the tempered distribution (`row_moments`). All that
follows needs no more than these three numbers for each row:

1. `survey` checks the values in a first pass and finds data that determine no
   temperature.
2. `most_likely` minimises the negative log-likelihood. It is convex in b, so
   that Newton's method on its slope, kept inside a bracket, finds the optimum.
   It steps in log b, where badly scaled logits make no difference. Most of the
   way is gone on a sample of the rows; the full data need about three passes.
3. `Search` minimises a calibration error, which has several local minima.

Each exponential is computed once for all three sums. Single rows are summed in
the logits' precision, over rows in float64.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from caltrain_tf import layers
from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_number
from caltrain_tf.checks import warn
from caltrain_tf.metrics.binned import error_of_confidence
from caltrain_tf.metrics.inputs import map_blocks
from caltrain_tf.posthoc.base import Calibrator

OBJECTIVES = ("nll", "sb_ece", "hb_ece")
SHORT_ROW = 32
# Rows on which Newton's method finds its start.
SAMPLE_ROWS = 2048
# Inverse temperatures that are tried, times the spread of the logits. At the
# ends the predictions are uniform, or all of one class, to float32.
LOWEST, HIGHEST = 1e-6, 1e6
# A step of this relative size leaves an error of about its square.
TOLERANCE = 1e-6
MAX_STEPS = 100
# Neighbouring inverse temperatures at which `Search` passes over the logits.
NODE_RATIO = 1.25
# Temperatures that are tried between two of them. A hard-binned error jumps
# wherever two examples change places, and needs more of them.
SMOOTH_GRID, JUMPING_GRID = 12, 60
# Of log b around a minimum, for the last digits.
FOCUS = 0.01
# The smallest bin mass that is divided by, as in `losses.sb_ece`.
SMALLEST_MASS = 1e-5
# Largest exponent that is far from overflowing float64.
LARGEST_EXPONENT = 600.0


class TemperatureScaling(Calibrator):
    """Divides the logits by one number, which keeps the predicted classes.

    The temperature is the global optimum of the objective on the given data:

    - `"nll"`: the negative log-likelihood (TS).
    - `"sb_ece"`: the soft-binned calibration error in the l2 norm
      (TS-SB-ECE). Bins of `binning="bin"` (equation 11 of the paper) are the
      default here, because they are what the hard-binned error measures;
      `"label"` (equation 12) also counts the spread of confidences inside a
      bin, and so prefers temperatures that are too small.
    - `"hb_ece"`: the hard-binned error, l2 over bins of equal mass
      (TS-HB-ECE).

    Where the data determine no temperature, as when no example is
    misclassified, `fit` warns and chooses a finite one.

    Args:
        objective: One of the above.
        num_bins: Number of bins, for the last two.
        binning: `"bin"` or `"label"`, for `"sb_ece"`.
        soft_temperature: Softness of the bins, for `"sb_ece"`.
        from_probs: Whether predictions are probabilities instead of logits.
            Those below 1e-12 are taken to be that.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that count nothing.

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
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(
            from_probs=from_probs,
            multi_label=multi_label,
            ignore_class=ignore_class,
        )
        self.objective = check_choice("objective", objective, OBJECTIVES)
        self.num_bins = check_count("num_bins", num_bins)
        self.binning = check_choice("binning", binning, ("bin", "label"))
        self.soft_temperature = check_number(
            "soft_temperature", soft_temperature, low=0
        )

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
        start = first_guess(rows, view)
        if self.objective == "sb_ece":
            error = SoftBinnedError(
                self.num_bins, self.soft_temperature, self.binning
            )
            search = Search(rows, error, start, view.spread, SMOOTH_GRID)
            position = search.lowest_of_smooth_error()
        else:
            error = partial(error_of_confidence, num_bins=self.num_bins)
            search = Search(rows, error, start, view.spread, JUMPING_GRID)
            position = search.lowest_of_jumping_error()
        if not search.is_inside(position):
            warn(
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
        check_number("temperature_", self.temperature_, low=0)


class Survey(NamedTuple):
    """What the first pass tells about the rows."""

    count: float  # How many rows of equal weight would say as much.
    separable: bool  # Whether no label has less than its row's largest logit.
    spread: float  # Root mean square of logit - largest logit of the row.
    slope: float  # Mean slope of the likelihood at b = 0,
    curvature: float  # and its mean curvature there.


def survey(rows):
    """Checks the values of all rows and returns their `Survey`."""

    def block(logits, labels, weights):
        shifted = shift(logits)
        of_label = shifted[np.arange(len(labels)), labels].astype(np.float64)
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

    sums = np.sum(rows.map(block, check=True), axis=0)
    squares, weight, wrong, square, slope, curvature = sums
    if not np.isfinite(square):
        raise ValueError(
            "`logits` must not differ by more than the square root of the "
            f"largest number of their type. Received: squares up to {square}"
        )
    return Survey(
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
    """Where the mean confidence is (n + 1) / (n + 2).

    This is Laplace's rule of succession: the probability that the next one of
    the same kind is right as well, after n that were.
    """
    target = (view.count + 1) / (view.count + 2)

    def excess(position):
        nodes = evaluate_nodes(rows, [math.exp(position)])
        confidence = np.exp(-nodes.log_sum[0])
        return np.average(confidence, weights=nodes.weights) - target

    low = math.log(LOWEST / view.spread)
    high = math.log(HIGHEST / view.spread)
    # Ties keep confidences below 1 at any temperature.
    if excess(high) < 0:
        return math.exp(high)
    return math.exp(brentq(excess, low, high, xtol=1e-6))


def _warn_of_chosen(reason, inverse):
    warn(
        f"{reason}: these data determine no temperature. Using {1 / inverse:g}."
    )


def most_likely(rows, view):
    """The inverse temperature of the smallest likelihood."""
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
    """An inverse temperature close to the likely one, from a sample."""
    guess = abs(view.slope) / view.curvature if view.curvature else 1.0
    guess = guess or 1.0 / view.spread
    sample = rows.sample(SAMPLE_ROWS)
    if sample is rows:
        return guess
    inverse = _newton(sample, guess, view, tolerance=1e-2)
    lowest, highest = LOWEST / view.spread, HIGHEST / view.spread
    return inverse if 10 * lowest < inverse < highest / 10 else guess


def _newton(rows, inverse, view, tolerance):
    """The root of the likelihood's slope, from a starting point."""
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
        if low <= position + step <= high:
            position += step
        else:
            step = (low + high) / 2 - position
            position += step
        if abs(step) < tolerance:
            return math.exp(position)
    warn(
        f"The temperature did not converge in {MAX_STEPS} steps. "
        f"Using {math.exp(-position):g}.",
        ConvergenceWarning,
    )
    return math.exp(position)


def likelihood(rows, inverse):
    """Negative log-likelihood at temperature 1/`inverse`, in one pass.

    Args:
        rows: `Rows` or a `Stream`.
        inverse: Inverse temperature b, at least 0.

    Returns:
        Weighted sums over the rows of the value and of its first and second
        derivative in b.
    """

    def block(logits, labels, weights):
        shifted = shift(logits)
        of_label = shifted[np.arange(len(labels)), labels].astype(np.float64)
        log_sum, mean, variance = row_moments(shifted, inverse)
        return (
            total(log_sum - inverse * of_label, weights),
            total(mean - of_label, weights),
            total(variance, weights),
        )

    return np.sum(rows.map(block), axis=0)


class Nodes(NamedTuple):
    """All rows at some temperatures.

    log_sum, mean and variance have the shape `(temperatures, rows)`; weights
    `(rows,)`, or None.
    """

    correct: np.ndarray
    weights: np.ndarray
    log_sum: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def evaluate_nodes(rows, inverses):
    """`Nodes` of all rows at several inverse temperatures, in one pass."""

    def block(logits, labels, weights):
        shifted = shift(logits)
        moments = [row_moments(shifted, inverse) for inverse in inverses]
        correct = logits.argmax(axis=1) == labels
        return correct, weights, np.array(moments)

    correct, weights, moments = zip(*rows.map(block), strict=True)
    weights = np.concatenate(
        [
            np.ones(len(hits)) if part is None else part
            for hits, part in zip(correct, weights, strict=True)
        ]
    )
    if np.all(weights == weights[0]):
        weights = None
    moments = np.concatenate(moments, axis=2).transpose(1, 0, 2)
    return Nodes(np.concatenate(correct), weights, *moments)


class Search:
    """A calibration error as a function of log b, and its lowest value.

    A calibration error has several local minima in the temperature. Two facts
    make a search for the lowest one cheap and certain:

    - By Jensen's inequality every binned error is at least |mean confidence -
      accuracy|, and the mean confidence falls with the temperature. Outside
      the temperatures where that gap is below the best error so far there is
      nothing to find, so that the search ends with proof, on both sides.
    - The log-normaliser of a row is a smooth function of log b. Its value,
      slope and curvature at two b of ratio 1.25 give it in between to about
      1e-5 by quintic interpolation (`Panel`), and to float32 at a ratio of
      1.02, where the search ends. A pass over the logits is needed for each
      such node, and none for the temperatures that are tried in between.
    """

    def __init__(self, rows, error, centre, spread, grid):
        """Tries a grid of temperatures until nothing better can be left.

        Args:
            rows: `Rows` or a `Stream`.
            error: Function of confidences, correctness and weights.
            centre: The inverse temperature to begin at.
            spread: Typical size of the logits, which says where to give up.
            grid: How many temperatures to try between two nodes.
        """
        self.rows = rows
        self.error = error
        self.panels = []
        self.grid = grid
        self.tried = {}
        step = math.log(NODE_RATIO)
        middle = math.log(centre)
        self._add([[middle - step, middle, middle + step]])
        lowest, highest = math.log(1e-4 / spread), math.log(1e5 / spread)
        while True:
            low, high = self.panels[0], self.panels[-1]
            best = min(self.tried.values())
            missing = []
            if low.gap(low.low) > -best and low.low > lowest:
                missing.append([low.low - step, low.low])
            if high.gap(high.high) < best and high.high < highest:
                missing.append([high.high, high.high + step])
            if not missing:
                break
            self._add(missing)

    def __call__(self, position):
        """The error at log b = `position`."""
        for panel in self.panels:
            if position <= panel.high:
                break
        return panel.error(self.error, position)

    def is_inside(self, position):
        """Whether the error was seen to rise on both sides of `position`."""
        return min(self.tried) < position < max(self.tried)

    def lowest_of_smooth_error(self):
        """The log b of the lowest value, by descent into the lowest valleys."""

        def descend(low, high, tolerance):
            found = minimize_scalar(
                self,
                bounds=(low, high),
                method="bounded",
                options={"xatol": tolerance},
            )
            if not found.success:
                warn(
                    f"The temperature did not converge: {found.message}",
                    ConvergenceWarning,
                )
            return found

        found = [
            descend(low, high, FOCUS / 10) for low, _, high in self._minima(3)
        ]
        best = min(found, key=lambda result: result.fun).x
        self._focus(best)
        return descend(best - FOCUS, best + FOCUS, tolerance=1e-7).x

    def lowest_of_jumping_error(self):
        """The log b of the lowest value, by finer and finer grids."""
        best = self._finer(self._minima(5), levels=2)
        self._focus(best)
        return self._finer([(best - FOCUS, best, best + FOCUS)], levels=3)

    def _add(self, stretches):
        """Evaluates stretches of neighbouring nodes in one pass."""
        nodes = evaluate_nodes(self.rows, np.exp(np.concatenate(stretches)))
        bounds = []
        first = 0
        for stretch in stretches:
            for i in range(len(stretch) - 1):
                panel = Panel(nodes, first + i, *stretch[i : i + 2])
                self.panels.append(panel)
                for x in np.linspace(panel.low, panel.high, self.grid + 1):
                    bounds.append((abs(panel.gap(x)), x, panel))
            first += len(stretch)
        self.panels.sort(key=lambda panel: panel.low)
        best = min(self.tried.values(), default=math.inf)
        for bound, x, panel in sorted(bounds, key=lambda item: item[0]):
            if x in self.tried:
                continue
            # Where even the bound is no better, the error need not be known.
            if bound < best:
                bound = panel.error(self.error, x)
                best = min(best, bound)
            self.tried[x] = bound

    def _minima(self, count):
        """Brackets `(low, best, high)` of the grid's `count` lowest minima."""
        x, y = np.array(sorted(self.tried.items())).T
        padded = np.concatenate([[math.inf], y, [math.inf]])
        is_minimum = (y <= padded[:-2]) & (y <= padded[2:])
        lowest = sorted(np.flatnonzero(is_minimum), key=lambda i: y[i])
        last = len(x) - 1
        return [
            (x[max(i - 1, 0)], x[i], x[min(i + 1, last)])
            for i in lowest[:count]
        ]

    def _focus(self, position):
        """Replaces the nodes by two that are close to `position`."""
        ends = [position - FOCUS, position + FOCUS]
        nodes = evaluate_nodes(self.rows, np.exp(ends))
        self.panels = [Panel(nodes, 0, *ends)]

    def _finer(self, brackets, levels, points=20):
        tried = {}
        for _ in range(levels):
            for low, best, high in brackets:
                for x in (best, *np.linspace(low, high, points + 1)):
                    if x not in tried:
                        tried[x] = self(x)
            width = (brackets[0][2] - brackets[0][0]) / points
            lowest = sorted(tried, key=tried.get)[: len(brackets)]
            brackets = [(x - width, x, x + width) for x in lowest]
        return min(tried, key=tried.get)


class Panel:
    """Confidences at any temperature between two neighbouring nodes."""

    def __init__(self, nodes, left, low, high):
        """Takes `Nodes`, the left one's index, and log b at both ends.

        In log b, the slope of the log-normaliser is b mean and its curvature
        b^2 variance + b mean. The coefficients of the quintic are of t, which
        goes from 0 to 1 while log b goes from `low` to `high`.
        """
        self.low, self.high = low, high
        self.correct, self.weights = nodes.correct, nodes.weights
        self.accuracy = np.average(self.correct, weights=self.weights)
        width = high - low
        value, slope, bend = [], [], []
        for node, position in ((left, low), (left + 1, high)):
            inverse = math.exp(position)
            first = inverse * nodes.mean[node]
            value.append(nodes.log_sum[node])
            slope.append(first * width)
            bend.append((inverse**2 * nodes.variance[node] + first) * width**2)
        rise = value[1] - value[0] - slope[0] - bend[0] / 2
        turn = slope[1] - slope[0] - bend[0]
        twist = bend[1] - bend[0]
        self._coefficients = (
            value[0],
            slope[0],
            bend[0] / 2,
            10 * rise - 4 * turn + twist / 2,
            -15 * rise + 7 * turn - twist,
            6 * rise - 3 * turn + twist / 2,
        )

    def confidence(self, position):
        """Confidences of all rows at log b = `position`."""
        t = (position - self.low) / (self.high - self.low)
        log_sum = self._coefficients[-1] * t
        for coefficient in self._coefficients[-2:0:-1]:
            log_sum += coefficient
            log_sum *= t
        log_sum += self._coefficients[0]
        np.negative(log_sum, out=log_sum)
        return np.minimum(np.exp(log_sum, out=log_sum), 1.0)

    def gap(self, position):
        """Mean confidence - accuracy, which no error can be below."""
        confidence = self.confidence(position)
        return np.average(confidence, weights=self.weights) - self.accuracy

    def error(self, function, position):
        """An error at log b = `position`."""
        return function(
            self.confidence(position), self.correct, weight=self.weights
        )


class SoftBinnedError:
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`."""

    def __init__(self, num_bins, temperature, binning):
        """Takes the options of `losses.sb_ece` of the same names."""
        self.centres = (np.arange(num_bins) + 0.5) / num_bins
        self.temperature = temperature
        self.binning = binning

    def __call__(self, confidence, correct, weight=None):
        """The error of confidences `(N,)` that were right or wrong `(N,)`.

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
            membership = self._membership(c)
            share = 1.0 / membership.sum(axis=0)
            if weight is not None:
                share *= weight[start:stop]
            columns = np.stack([share, share * c, share * a, share * c * c])
            return columns @ membership.T

        row_bytes = confidence.itemsize * len(self.centres)
        sums = np.sum(map_blocks(block, count, row_bytes), axis=0)
        mass, confidences, hits, squares = sums
        divisor = np.maximum(mass, SMALLEST_MASS)
        if self.binning == "bin":
            error = np.sum((hits - confidences) ** 2 * mass / divisor**2)
        else:
            accuracy = hits / divisor
            error = np.sum(
                accuracy**2 * mass - 2 * accuracy * confidences + squares
            )
        return np.sqrt(max(error, 0.0) / count)

    def _membership(self, confidence):
        """exp(-(c - m)^2 / t) up to a factor of each example, `(bins, N)`.

        With the centres m = 1/2 + k w it is, up to such a factor,
        exp(-(k w)^2 / t) q^k with q = exp(2 (c - 1/2) w / t): one exponential
        per example instead of one for each bin.
        """
        num_bins = len(self.centres)
        centred = confidence - 0.5
        if max(0.5, 1 / num_bins) / self.temperature > LARGEST_EXPONENT:
            distance = np.abs(confidence - self.centres[:, None])
            nearest = distance.min(axis=0)
            return np.exp((nearest**2 - distance**2) / self.temperature)
        offsets = self.centres - 0.5
        powers = np.empty((num_bins, len(confidence)))
        np.exp(centred * (2.0 * offsets[0] / self.temperature), out=powers[0])
        ratio = np.exp(centred * (2.0 / num_bins / self.temperature))
        for k in range(1, num_bins):
            np.multiply(powers[k - 1], ratio, out=powers[k])
        powers *= np.exp(-(offsets**2) / self.temperature)[:, None]
        return powers
