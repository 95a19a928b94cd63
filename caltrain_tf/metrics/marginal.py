"""The calibration error of all class probabilities, class by class."""

import itertools

import numpy as np

from caltrain_tf import checks
from caltrain_tf.inputs import map_blocks, read, shift_logits
from caltrain_tf.metrics.binned import (
    Bins,
    check_bins,
    edge_ranks,
    in_units,
    inner_edges,
    mass_edges,
)

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
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Calibration error of the probabilities of every class.

    Each class is binned on its own. With bins of weight w_kb, mean probability
    conf_kb and frequency acc_kb of class k,

        (1/K sum_k sum_b w_kb |conf_kb - acc_kb|^norm)^(1/norm)

    and for `norm=inf` the largest of the differences. The bins are those of
    `calibration_error`.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem, which has two classes.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        num_bins: Number of bins of each class.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        threshold: If given, probabilities up to it are left out, and the
            weights are shares of the remaining ones.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

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
        checks.number("threshold", threshold, low=0, high=1, closed=True)
    examples = read(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    probs, labels = examples.whole()
    weight = None if examples.weight is None else in_units(examples.weight)
    num_examples, num_classes = probs.shape
    log_totals = _log_totals(probs) if from_logits else None

    def errors(first, last):
        # A copy of some columns, each of them contiguous.
        columns = np.array(probs[:, first:last].T, order="C")
        if from_logits:
            np.exp(shift_logits(columns, log_totals), out=columns)
        powers = []
        for k, column in enumerate(columns, start=first):
            bins = _bins_of_class(
                column, labels == k, weight, num_bins, binning, threshold
            )
            error = 0.0 if bins is None else bins.error(norm)
            powers.append(error if norm == np.inf else error**norm)
        return powers

    column_bytes = probs.itemsize * num_examples
    classes_in_a_group = num_classes // FEWEST_GROUPS
    classes_in_a_group = min(classes_in_a_group, MOST_CLASSES_IN_A_GROUP)
    powers = map_blocks(
        errors,
        num_classes,
        column_bytes,
        block_bytes=max(classes_in_a_group, 1) * column_bytes,
    )
    powers = np.concatenate(powers)
    if norm == np.inf:
        return float(powers.max())
    return float(powers.mean() ** (1 / norm))


def _bins_of_class(column, is_class, weight, num_bins, binning, threshold):
    """`Bins` of one class, None if the threshold leaves nothing."""
    if weight is None:
        # Sorts of values alone are several times as fast as `argsort`.
        hits = np.sort(column[is_class])
        column.sort()
    else:
        order = np.argsort(column)
        column, weight = column[order], weight[order]
        hits = weight * is_class[order]
    if threshold is not None:
        first = np.searchsorted(column, threshold, side="right")
        column = column[first:]
        if weight is None:
            hits = hits[np.searchsorted(hits, threshold, side="right") :]
        else:
            weight, hits = weight[first:], hits[first:]
        if len(column) == 0:
            return None
    if binning == "equal_width":
        edges = inner_edges(None, num_bins, binning)
    elif weight is None:
        edges = column[edge_ranks(len(column), num_bins).astype(np.int64)]
    else:
        edges = mass_edges(column, weight, num_bins)
    starts = _starts(column, edges)

    def sums(values):
        # `reduceat` would make a float64 copy of the column.
        return np.array(
            [
                values[first:last].sum(dtype=np.float64)
                for first, last in itertools.pairwise(starts)
            ]
        )

    if weight is None:
        count = np.diff(starts).astype(np.float64)
        return Bins(count, sums(column), np.diff(_starts(hits, edges)))
    return Bins(sums(weight), sums(weight * column), sums(hits))


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
