"""What a temperature does to each row of logits: the one pass all fits share.

With d = logits - their maximum and b = 1/temperature, a row has the sums
exp(b d), d exp(b d) and d^2 exp(b d). They give the logarithm of its
normaliser, and that function's slope and curvature in b, which are the mean and
the variance of d under the tempered distribution. Each exponential is computed
once for all three; single rows are summed in the logits' precision, over rows
in float64.
"""

from typing import NamedTuple

import numpy as np

SHORT_ROW = 32


class Totals(NamedTuple):
    """Sums over rows of the negative log-likelihood and its derivatives."""

    count: float
    value: float
    slope: float
    curvature: float


class Nodes(NamedTuple):
    """Log-normalisers of all rows at some temperatures.

    log_sum, mean and variance have the shape `(temperatures, rows)`.
    """

    correct: np.ndarray
    log_sum: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


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
    total = np.einsum("ij->i", weighted).astype(np.float64)
    weighted *= shifted
    mean = np.einsum("ij->i", weighted) / total
    square = np.einsum("ij,ij->i", weighted, shifted) / total
    return np.log(total), mean, np.maximum(square - mean**2, 0.0)


def likelihood(rows, inverse):
    """Negative log-likelihood at temperature 1/`inverse`, in one pass.

    Args:
        rows: `ArrayRows` or `DatasetRows`.
        inverse: Inverse temperature b, at least 0.

    Returns:
        `Totals`, with derivatives in b.
    """

    def block(logits, labels, _):
        shifted = shift(logits)
        of_label = shifted[np.arange(len(labels)), labels].astype(np.float64)
        log_sum, mean, variance = row_moments(shifted, inverse)
        return (
            len(labels),
            np.sum(log_sum - inverse * of_label),
            np.sum(mean - of_label),
            np.sum(variance),
        )

    return Totals(*np.sum(rows.map(block), axis=0))


def evaluate_nodes(rows, inverses):
    """`Nodes` of all rows at several inverse temperatures, in one pass."""

    def block(logits, labels, _):
        shifted = shift(logits)
        moments = [row_moments(shifted, inverse) for inverse in inverses]
        correct = logits.argmax(axis=1) == labels
        return correct, np.array(moments)

    corrects, moments = zip(*rows.map(block), strict=True)
    moments = np.concatenate(moments, axis=2)
    return Nodes(np.concatenate(corrects), *moments.transpose(1, 0, 2))
