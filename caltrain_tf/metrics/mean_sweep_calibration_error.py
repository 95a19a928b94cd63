"""A calibration error that chooses its own number of bins."""

import numpy as np

from caltrain_tf.checks import check_choice
from caltrain_tf.metrics.binning import Bins
from caltrain_tf.metrics.binning import edge_ranks
from caltrain_tf.metrics.binning import sort_together
from caltrain_tf.metrics.calibration_error import power_mean
from caltrain_tf.metrics.options import NORMS
from caltrain_tf.metrics.top_label import top_label


def mean_sweep_calibration_error(probs, labels, norm=2, *, from_logits=False):
    """Calibration error with as many equal-mass bins as stay monotone.

    The number of bins grows from 1 until the bins' accuracies first fail to
    increase with their confidences (or are as many as the examples); the last
    number before is taken. The bins are those of `calibration_error`.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        norm: 1, 2 or `math.inf`.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> ct.metrics.mean_sweep_calibration_error(probs, [0, 0, 1, 0])
        0.3536

    Reference:
        Roelofs et al., "Mitigating Bias in Calibration Error Estimation", 2020.
    """
    check_choice("norm", norm, NORMS)
    confidence, correct = top_label(probs, labels, from_logits)
    return sweep_of_confidence(confidence, correct, norm)


def sweep_of_confidence(confidence, correct, norm=2):
    """`mean_sweep_calibration_error`, given confidences and correctness."""
    confidence, correct = sort_together(confidence, correct)
    # Sums over all examples before each one; ties begin where the first does.
    hits_before = np.concatenate([[0], np.cumsum(correct)])
    first_of_ties = np.searchsorted(confidence, confidence, side="left")
    num_bins = _largest_monotone(hits_before, first_of_ties)

    starts = _starts(first_of_ties, num_bins)
    sums_before = np.concatenate([[0.0], np.cumsum(confidence, dtype=float)])
    bins = Bins(
        np.diff(starts).astype(float),
        np.diff(sums_before[starts]),
        np.diff(hits_before[starts]).astype(float),
    )
    return power_mean(bins.confidence - bins.accuracy, norm, bins.weight)


def _largest_monotone(hits_before, first_of_ties):
    num_examples = len(first_of_ties)
    group_starts = _without_empty(np.append(first_of_ties, num_examples))
    if _is_monotone(group_starts, hits_before):
        # Then so are unions of neighbours, and that is what all bins are.
        return num_examples
    for num_bins in range(2, num_examples + 1):
        starts = _without_empty(_starts(first_of_ties, num_bins))
        if not _is_monotone(starts, hits_before):
            return num_bins - 1
    return num_examples


def _starts(first_of_ties, num_bins):
    """Where each bin begins, and where the last one ends."""
    ranks = edge_ranks(len(first_of_ties), num_bins)
    return np.concatenate([[0], first_of_ties[ranks], [len(first_of_ties)]])


def _without_empty(starts):
    return starts[np.append(starts[1:] != starts[:-1], True)]


def _is_monotone(starts, hits_before):
    accuracy = np.diff(hits_before[starts]) / np.diff(starts)
    return bool(np.all(accuracy[1:] >= accuracy[:-1]))
