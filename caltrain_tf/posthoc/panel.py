"""Confidences at any temperature between two that were evaluated."""

import math

import numpy as np


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
