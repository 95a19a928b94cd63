"""The temperature of the smallest calibration error, found globally.

A calibration error has several local minima in the temperature. Two facts make
a search for the lowest one cheap and certain:

- By Jensen's inequality every binned error is at least |mean confidence -
  accuracy|, and the mean confidence falls with the temperature. Outside the
  temperatures where that gap is below the best error so far there is nothing
  to find, so that the search ends with proof, on both sides.
- The log-normaliser of a row is a smooth function of log b, b = 1/temperature.
  Its value, slope and curvature at two b of ratio 1.25 give it in between to
  about 1e-5 by quintic interpolation, and to float32 at a ratio of 1.02, where
  the search ends. A pass over the logits is needed for each such node, and none
  for the temperatures that are tried in between.
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from caltrain_tf.posthoc import tempered

NODE_RATIO = 1.25
# Of log b around a minimum, for the last digits.
FOCUS = 0.01
# A side ends at the latest where b * spread of the logits is this.
LOWEST, HIGHEST = 1e-4, 1e5


class Panel:
    """All temperatures between two nodes."""

    def __init__(self, nodes, left, low, high):
        """Takes `Nodes`, the left one's index, and log b at both ends."""
        self.low, self.high = low, high
        self.correct = nodes.correct
        self._coefficients = _quintic(nodes, left, low, high)

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
        return np.mean(self.confidence(position)) - np.mean(self.correct)


class Search:
    """A calibration error as a function of log b, and its lowest value."""

    def __init__(self, rows, error, centre, spread, grid):
        """Tries a grid of temperatures until nothing better can be left.

        Args:
            rows: `ArrayRows` or `DatasetRows`.
            error: Function of confidences and correctness.
            centre: The inverse temperature to begin at.
            spread: Typical size of the logits, which says where to give up.
            grid: How many temperatures to try between two nodes.
        """
        self.error = error
        self.panels = []
        self.grid = grid
        self.tried = {}
        step = math.log(NODE_RATIO)
        middle = math.log(centre)
        self._add(rows, [[middle - step, middle, middle + step]])
        lowest = math.log(LOWEST / spread)
        highest = math.log(HIGHEST / spread)
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
            self._add(rows, missing)

    def __call__(self, position):
        """The error at log b = `position`."""
        for panel in self.panels:
            if position <= panel.high:
                break
        return self.error(panel.confidence(position), panel.correct)

    def minima(self, count):
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

    def focus(self, rows, position):
        """Replaces the nodes by two that are close to `position`."""
        ends = [position - FOCUS, position + FOCUS]
        nodes = tempered.evaluate_nodes(rows, np.exp(ends))
        self.panels = [Panel(nodes, 0, *ends)]

    def is_inside(self, position):
        """Whether the error was seen to rise on both sides of `position`."""
        return min(self.tried) < position < max(self.tried)

    def _add(self, rows, stretches):
        """Evaluates stretches of neighbouring nodes in one pass."""
        nodes = tempered.evaluate_nodes(rows, np.exp(np.concatenate(stretches)))
        first = 0
        for stretch in stretches:
            for i in range(len(stretch) - 1):
                low, high = stretch[i : i + 2]
                panel = Panel(nodes, first + i, low, high)
                self.panels.append(panel)
                for x in np.linspace(low, high, self.grid + 1):
                    if x not in self.tried:
                        self.tried[x] = self.error(
                            panel.confidence(x), panel.correct
                        )
            first += len(stretch)
        self.panels.sort(key=lambda panel: panel.low)


def _quintic(nodes, left, low, high):
    """Coefficients in t of the log-normaliser L, `(6, rows)`.

    t goes from 0 to 1 while log b goes from `low` to `high`. In log b, the
    slope of L is b mean and its curvature b^2 variance + b mean.
    """
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
    return np.stack(
        [
            value[0],
            slope[0],
            bend[0] / 2,
            10 * rise - 4 * turn + twist / 2,
            -15 * rise + 7 * turn - twist,
            6 * rise - 3 * turn + twist / 2,
        ]
    )


def lowest_smooth(search, rows):
    """The log b of the lowest value of a smooth error."""

    def descend(low, high):
        return minimize_scalar(
            search,
            bounds=(low, high),
            method="bounded",
            options={"xatol": 1e-7},
        )

    found = [descend(low, high) for low, _, high in search.minima(3)]
    best = min(found, key=lambda result: result.fun).x
    search.focus(rows, best)
    return descend(best - FOCUS, best + FOCUS).x


def lowest_by_levels(search, rows):
    """The log b of the lowest value of an error with jumps.

    Around each of the lowest grid points a finer grid is laid, and so on.
    """
    best = _finer(search, search.minima(5), levels=2)
    search.focus(rows, best)
    return _finer(search, [(best - FOCUS, best, best + FOCUS)], levels=3)


def _finer(search, brackets, levels, points=20):
    tried = {}
    for _ in range(levels):
        for low, best, high in brackets:
            for x in (best, *np.linspace(low, high, points + 1)):
                if x not in tried:
                    tried[x] = search(x)
        width = (brackets[0][2] - brackets[0][0]) / points
        lowest = sorted(tried, key=tried.get)[: len(brackets)]
        brackets = [(x - width, x, x + width) for x in lowest]
    return min(tried, key=tried.get)
