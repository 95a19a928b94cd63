"""What a reliability diagram shows."""

from typing import NamedTuple

import numpy as np

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.metrics.binning import fill_bins
from caltrain_tf.metrics.binning import inner_edges
from caltrain_tf.metrics.options import BINNINGS
from caltrain_tf.metrics.top_label import top_label


class ReliabilityCurve(NamedTuple):
    """Arrays `(num_bins,)`, NaN for means over an empty bin."""

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray


def reliability_curve(
    probs, labels, num_bins=15, binning="equal_mass", *, from_logits=False
):
    """Mean confidence, accuracy and number of examples of every bin.

    The bins are those of `calibration_error`.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        num_bins: Number of bins.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        from_logits: Whether `probs` holds logits.

    Returns:
        A named tuple of `confidence`, `accuracy` and `count`, each
        `(num_bins,)`. Where `count` is 0, the other two are NaN.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> labels = [0, 0, 1, 0]
        >>> curve = ct.metrics.reliability_curve(probs, labels, num_bins=2)
        >>> curve.confidence.round(2).tolist(), curve.accuracy.tolist()
        ([0.65, 0.85], [0.5, 1.0])
        >>> curve.count.tolist()
        [2, 2]
    """
    check_count("num_bins", num_bins)
    check_choice("binning", binning, BINNINGS)
    confidence, correct = top_label(probs, labels, from_logits)
    edges = inner_edges(confidence, num_bins, binning)
    bins = fill_bins(confidence, correct, edges)
    empty = bins.count == 0
    return ReliabilityCurve(
        np.where(empty, np.nan, bins.confidence),
        np.where(empty, np.nan, bins.accuracy),
        bins.count.astype(np.int64),
    )
