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
from caltrain_tf.posthoc.panel import Panel

NODE_RATIO = 1.25
# Of log b around a minimum, for the last digits.
FOCUS = 0.01
# A side ends at the latest where b * spread of the logits is this.
LOWEST, HIGHEST = 1e-4, 1e5


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
                bound = self.error(panel.confidence(x), panel.correct)
                best = min(best, bound)
            self.tried[x] = bound


def lowest_smooth(search, rows):
    """The log b of the lowest value of a smooth error."""

    def descend(low, high, tolerance):
        return minimize_scalar(
            search,
            bounds=(low, high),
            method="bounded",
            options={"xatol": tolerance},
        )

    brackets = search.minima(3)
    found = [descend(low, high, FOCUS / 10) for low, _, high in brackets]
    best = min(found, key=lambda result: result.fun).x
    search.focus(rows, best)
    return descend(best - FOCUS, best + FOCUS, tolerance=1e-7).x


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
