"""The calibration error of all class probabilities, class by class."""

import itertools

import numpy as np

from caltrain_tf.checks import check_number
from caltrain_tf.metrics.binning import Bins
from caltrain_tf.metrics.binning import edge_ranks
from caltrain_tf.metrics.binning import equal_width_edges
from caltrain_tf.metrics.blocks import map_blocks
from caltrain_tf.metrics.calibration_error import power_mean
from caltrain_tf.metrics.inputs import check_predictions
from caltrain_tf.metrics.options import check_bins
from caltrain_tf.metrics.rows import shift_logits

# Columns are copied in groups. 16 float32 are a cache line, so that every line
# of the array is read once; but a group is no more than 1/16 of the array.
MOST_CLASSES_IN_A_GROUP = 16
FEWEST_GROUPS = 16


def marginal_calibration_error(
    probs,
    labels,
    num_bins=15,
    norm=2,
    binning="equal_mass",
    threshold=None,
    *,
    from_logits=False,
):
    """Calibration error of the probabilities of every class.

    Each class is binned on its own. With bins of weight w_kb, mean probability
    conf_kb and frequency acc_kb of class k,

        (1/K sum_k sum_b w_kb |conf_kb - acc_kb|^norm)^(1/norm)

    and for `norm=inf` the largest of the differences. Bins as in
    `calibration_error`.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        num_bins: Number of bins of each class.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        threshold: If given, probabilities up to it are left out, and the
            weights are shares of those that remain.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> labels = [0, 0, 1, 0]
        >>> ct.metrics.marginal_calibration_error(probs, labels, num_bins=2)
        0.1500

    References:
        Kumar et al., "Verified Uncertainty Calibration", 2019. Nixon et al.,
        "Measuring Calibration in Deep Learning", 2019 (threshold).
    """
    check_bins(num_bins, norm, binning)
    if threshold is not None:
        check_number("threshold", threshold, low=0, high=1, closed=True)
    probs, labels = check_predictions(probs, labels, from_logits)
    num_examples, num_classes = probs.shape
    log_totals = _log_totals(probs) if from_logits else None

    def errors(first, last):
        # A copy of some columns, each of them contiguous.
        columns = np.array(probs[:, first:last].T, order="C")
        if from_logits:
            np.exp(shift_logits(columns, log_totals), out=columns)
        return [
            _class_error(
                column, labels == k, num_bins, norm, binning, threshold
            )
            for k, column in enumerate(columns, start=first)
        ]

    column_bytes = probs.itemsize * num_examples
    classes_in_a_group = num_classes // FEWEST_GROUPS
    classes_in_a_group = min(classes_in_a_group, MOST_CLASSES_IN_A_GROUP)
    of_classes = map_blocks(
        errors,
        num_classes,
        column_bytes,
        block_bytes=max(classes_in_a_group, 1) * column_bytes,
    )
    of_classes = np.concatenate(of_classes)
    if norm == np.inf:
        return float(of_classes.max())
    return float(of_classes.mean() ** (1 / norm))


def _class_error(column, is_class, num_bins, norm, binning, threshold):
    """sum_b w_b |conf_b - acc_b|^norm of one class; sorts its column."""
    hits = np.sort(column[is_class])
    column.sort()
    if threshold is not None:
        column = column[np.searchsorted(column, threshold, side="right") :]
        hits = hits[np.searchsorted(hits, threshold, side="right") :]
        if len(column) == 0:
            return 0.0
    if binning == "equal_mass":
        edges = column[edge_ranks(len(column), num_bins)]
    else:
        edges = equal_width_edges(num_bins)
    starts = _starts(column, edges)
    count = np.diff(starts)
    # Not reduceat, which would make a float64 copy of the column.
    sums = [
        column[first:last].sum(dtype=np.float64)
        for first, last in itertools.pairwise(starts)
    ]
    bins = Bins(
        count.astype(float), np.array(sums), np.diff(_starts(hits, edges))
    )
    error = power_mean(bins.confidence - bins.accuracy, norm, bins.weight)
    return error if norm == np.inf else error**norm


def _starts(sorted_values, edges):
    """Where in sorted values each bin begins, and where the last one ends."""
    inner = np.searchsorted(sorted_values, edges, side="left")
    return np.concatenate([[0], inner, [len(sorted_values)]])


def _log_totals(logits):
    """Logarithm of sum_k exp(logit) of every row."""
    totals = np.empty(len(logits), logits.dtype)

    def fill(start, stop):
        block = logits[start:stop]
        largest = block.max(axis=1)
        powers = shift_logits(block, largest[:, None])
        np.exp(powers, out=powers)
        totals[start:stop] = largest + np.log(np.einsum("ij->i", powers))

    map_blocks(fill, len(logits), logits.itemsize * logits.shape[1])
    return totals
