"""Calibration errors over hard bins, and the curve that shows them."""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from caltrain_tf import checks, inputs

BINNINGS = ("equal_mass", "equal_width")
ESTIMATORS = ("bin", "label")
NORMS = (1, 2, math.inf)
REDUCTIONS = ("mean", "sum")
# Fewer effective examples than 2, up to rounding, say nothing about their bias.
FEWEST_EXAMPLES = 1.999
# Examples whose bins are computed at a time: pixels need little memory.
EXAMPLES_PER_BLOCK = 8 * 1024


class Bins(NamedTuple):
    """Arrays `(num_bins,)`, float64; means over an empty bin are 0."""

    mass: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    squared_weight: Any

    @classmethod
    def from_sums(cls, mass, confidence, hits, squared_weight=None):
        """Divides the sums over the examples of each bin."""
        divisor = _not_zero(mass)
        return cls(mass, confidence / divisor, hits / divisor, squared_weight)

    def error(self, norm, debias=False):
        """(sum_b w_b |conf_b - acc_b|^norm)^(1/norm), or the largest gap."""
        accuracy, share, bias = self.accuracy, self.mass / self.mass.sum(), 0.0
        if debias:
            examples = self.mass**2 / _not_zero(self.squared_weight)
            known = examples > FEWEST_EXAMPLES
            bias = accuracy * (1 - accuracy) / _not_zero(known * (examples - 1))
            share = share * known
        return power_mean(self.confidence - accuracy, norm, share, bias)


class ReliabilityCurve(NamedTuple):
    """Arrays `(num_bins,)`, NaN for means over an empty bin."""

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray


def calibration_error(
    probs,
    labels,
    num_bins=15,
    norm=2,
    binning="equal_mass",
    estimator="bin",
    debias=False,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Expected calibration error of the predicted class (ECE).

    With bins of weight w_b (share of the examples), mean confidence conf_b and
    accuracy acc_b,

        bin:   (sum_b w_b |conf_b - acc_b|^norm)^(1/norm)
        label: (1/N sum_i |conf_i - acc_b(i)|^norm)^(1/norm)

    and for `norm=inf` the largest of the differences. With `debias`, the square
    of a bin's difference is reduced by its expected value under calibration,
    acc_b (1 - acc_b) / (n_b - 1); bins of fewer than 2 examples count 0, and
    the sum is at least 0.

    Equal-mass edges are the sorted confidences at min(round(linspace(0, N,
    num_bins, endpoint=False)), N - 1). An edge belongs to the bin above it, so
    that ties stay together, and the last bin is closed at 1. This differs from
    robustness_metrics, where confidences of exactly 1.0, of which saturated
    networks have thousands, fall into one more bin beyond the last.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        num_bins: Number of bins.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1]. (What the losses
            call `binning` is called `estimator` here.)
        estimator: `"bin"` or `"label"`, as above.
        debias: Whether to subtract the bias; for `norm=2, estimator="bin"`.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.
            A weight counts as that many examples, the smallest as one; with
            `debias` a bin has (sum w)^2 / sum w^2 examples.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> ct.metrics.calibration_error(probs, [0, 0, 1, 0], num_bins=2)
        0.1500

    References:
        Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian
        Binning", 2015. Kumar et al., "Verified Uncertainty Calibration", 2019
        (debiased). Karandikar et al., "Soft Calibration Objectives for Neural
        Networks", 2021 (label).
    """
    check_bins(num_bins, norm, binning, estimator, debias)
    shared = from_logits, multi_label, ignore_class, sample_weight
    confidence, correct, weight = inputs.top_labels(probs, labels, *shared)
    if weight is not None:
        weight = weight / weight.max()  # No sum or square overflows.
    edges = inner_edges(confidence, num_bins, binning, weight)
    bins = fill_bins(confidence, correct, edges, weight)
    if estimator == "bin":
        return bins.error(norm, debias)
    gaps = confidence - bins.accuracy[bin_indices(confidence, edges)]
    weight = np.ones(len(gaps)) if weight is None else weight
    return power_mean(gaps, norm, weight / weight.sum())


def mean_sweep_calibration_error(
    probs,
    labels,
    norm=2,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Calibration error with as many equal-mass bins as stay monotone.

    The number of bins grows from 1 until the accuracies of the bins no longer
    increase with their confidences, or until there are as many bins as
    examples. The last number of bins with increasing accuracies is used. The
    bins are those of `calibration_error`.

    Args:
        probs, labels: As in `calibration_error`.
        norm: 1, 2 or `math.inf`.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

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
    checks.choice("norm", norm, NORMS)
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    confidence, correct, weight = sort_together(*outcomes)
    weight = in_units(weight)
    mass = np.cumsum(weight)
    # A bin that begins within ties begins at the first of them.
    first_of_ties = np.searchsorted(confidence, confidence, side="left")
    terms = np.stack([weight, weight * confidence, weight * correct])

    def bins_from(starts):
        starts = np.unique(np.append(starts, 0))
        return Bins.from_sums(*np.add.reduceat(terms, starts, axis=1))

    def is_monotone(bins):
        return np.all(np.diff(bins.accuracy) >= 0)

    finest = bins_from(first_of_ties)
    # If groups of ties are monotone, so are unions of neighbouring ones.
    if is_monotone(finest):
        return finest.error(norm)
    bins = bins_from([0])
    for num_bins in range(2, len(mass) + 1):
        finer = bins_from(first_of_ties[edge_positions(mass, num_bins)])
        if not is_monotone(finer):
            break
        bins = finer
    return bins.error(norm)


def reliability_curve(
    probs,
    labels,
    num_bins=15,
    binning="equal_mass",
    *,
    positive=False,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Mean confidence, accuracy and number of examples of every bin.

    The bins are those of `calibration_error`. With `positive=True`, they are
    bins of the probability of class 1 of a binary problem, and the accuracy is
    the share of examples of class 1, as in scikit-learn's `calibration_curve`,
    where an edge belongs to the bin below it.

    Args:
        probs, labels: As in `calibration_error`.
        num_bins: Number of bins.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        positive: Whether to bin the probability of class 1, not the confidence.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A named tuple of `confidence`, `accuracy` and `count`, each
        `(num_bins,)`. Where `count` is 0, the other two are NaN. With weights,
        `count` is the sum of the weights.

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
    check_bins(num_bins, binning=binning)
    read = positives if checks.flag("positive", positive) else inputs.top_labels
    shared = from_logits, multi_label, ignore_class, sample_weight
    confidence, correct, weight = read(probs, labels, *shared)
    edges = inner_edges(confidence, num_bins, binning, weight)
    bins = fill_bins(confidence, correct, edges, weight)
    empty = bins.mass == 0
    return ReliabilityCurve(
        np.where(empty, np.nan, bins.confidence),
        np.where(empty, np.nan, bins.accuracy),
        bins.mass.astype(np.int64) if weight is None else bins.mass,
    )


def positives(*arguments):
    """`Outcomes` of class 1 of two; arguments as of `inputs.read`."""
    examples = inputs.read(*arguments)
    if examples.predictions.shape[1] > 2:
        raise ValueError(
            "`positive=True` needs `probs` of a binary problem. "
            f"Received: {examples.predictions.shape[1]} classes"
        )

    def of_block(block, labels):
        block = block.astype(np.float64)
        if examples.from_logits:
            return scipy.special.expit(block[:, 1] - block[:, 0]), labels == 1
        return np.clip(block[:, 1], 0, 1), labels == 1

    return inputs.Outcomes(*examples.map(of_block), examples.weight)


def marginal_calibration_error(
    probs,
    labels,
    num_bins=15,
    norm=2,
    binning="equal_mass",
    threshold=None,
    reduce="mean",
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Calibration error of the probabilities of every class.

    Each class is binned on its own. With bins of weight w_kb, mean probability
    conf_kb and frequency acc_kb of class k,

        mean: (1/K sum_k sum_b w_kb |conf_kb - acc_kb|^norm)^(1/norm)
        sum:  (sum_k sum_b w_kb |conf_kb - acc_kb|^norm)^(1/norm)

    and for `norm=inf` the largest of the differences. The bins are those of
    `calibration_error`.

    Args:
        probs, labels: As in `calibration_error`.
        num_bins: Number of bins of each class.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        threshold: If given, probabilities up to it are left out, and the
            weights are shares of the remaining ones.
        reduce: `"mean"`, or `"sum"` over the classes under the root, which is
            the scale of the paper "Soft Calibration Objectives".
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A float in [0, 1]; with `reduce="sum"`, in [0, K^(1/norm)].

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
    checks.choice("reduce", reduce, REDUCTIONS)
    if threshold is not None:
        checks.number("threshold", threshold, low=0, high=1, closed=True)
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(probs, labels, *shared)
    probs, labels = examples.whole()
    if examples.from_logits:

        def log_sum(block, labels):
            sums = np.exp(inputs.shift_logits(block)).sum(axis=1)
            return (block.max(axis=1) + np.log(sums),)

        (log_sums,) = examples.map(log_sum)

    def of_class(k, _):
        column = probs[:, k]
        if examples.from_logits:
            with np.errstate(over="ignore"):
                column = np.exp(column - log_sums)
        outcomes = inputs.Outcomes(column, labels == k, examples.weight)
        if threshold is not None:
            outcomes = outcomes.rows(column > threshold)
        if not len(outcomes.confidence):
            return 0.0
        return calibration_error(outcomes, None, num_bins, norm, binning)

    # A block for each class.
    errors = inputs.map_blocks(of_class, probs.shape[1], inputs.BLOCK_BYTES)
    errors = np.array(errors)
    if norm == math.inf:
        return float(errors.max())
    powers = errors**norm
    total = powers.mean() if reduce == "mean" else powers.sum()
    return float(total ** (1 / norm))


def check_bins(
    num_bins=15, norm=2, binning="equal_mass", estimator="bin", debias=False
):
    """Returns the first three options as plain values."""
    checks.choice("estimator", estimator, ESTIMATORS)
    if checks.flag("debias", debias) and (norm != 2 or estimator != "bin"):
        raise ValueError(
            '`debias=True` is defined for `norm=2, estimator="bin"` only. '
            f"Received: norm={norm!r}, estimator={estimator!r}"
        )
    return {
        "num_bins": checks.count("num_bins", num_bins),
        "norm": checks.choice("norm", norm, NORMS),
        "binning": checks.choice("binning", binning, BINNINGS),
    }


def inner_edges(confidence, num_bins, binning, weight=None):
    """The `num_bins - 1` values at which the second and later bins begin."""
    if binning == "equal_width":
        # `linspace` would give the next number above 0.6 for 3/5.
        return np.arange(1, num_bins) / num_bins
    if weight is None:
        ranks = edge_ranks(len(confidence), num_bins).astype(np.int64)
        return np.sort(confidence)[ranks]
    order = np.argsort(confidence)
    mass = np.cumsum(in_units(weight[order]))
    return confidence[order][edge_positions(mass, num_bins)]


def edge_ranks(num_examples, num_bins):
    """Number of examples below the start of the second and later bins."""
    ranks = np.linspace(0, num_examples, num_bins, endpoint=False)
    return np.minimum(np.round(ranks), num_examples - 1)[1:]


def edge_positions(mass, num_bins):
    """Where bins begin in a cumulated mass that counts examples."""
    # A rank that is a sum of weights may be off by rounding.
    ranks = edge_ranks(mass[-1], num_bins) + 1e-9 * mass[-1]
    return np.searchsorted(mass, ranks, side="right")


def in_units(weight):
    """Weights as multiples of the smallest, exact if all are whole."""
    # The divisor is at least 1e-15 of the largest, so that nothing overflows.
    units = weight / max(weight.min(), 1e-15 * weight.max())
    whole = np.rint(units)
    # Whole weights that were scaled in float32 are whole up to its rounding.
    return whole if np.allclose(units, whole, rtol=1e-6, atol=0) else units


def bin_indices(confidence, edges):
    """The bin of each confidence: an edge belongs to the bin above it."""
    return np.searchsorted(edges, confidence, side="right")


def fill_bins(confidence, correct, edges, weight=None):
    """Sums the examples into the bins between `edges`."""
    sums = np.zeros((4, len(edges) + 1))
    for start in range(0, len(confidence), EXAMPLES_PER_BLOCK):
        rows = slice(start, start + EXAMPLES_PER_BLOCK)
        index = bin_indices(confidence[rows], edges)
        w = np.ones(len(index)) if weight is None else weight[rows]
        terms = w, w * confidence[rows], w * correct[rows], w * w
        sums += [np.bincount(index, t, minlength=len(edges) + 1) for t in terms]
    return Bins.from_sums(*sums)


def sort_together(confidence, correct, weight=None):
    """Arrays by confidence, in float64; without weights, all are 1."""
    order = np.argsort(confidence)
    weight = np.ones(len(order)) if weight is None else weight
    return confidence[order].astype(np.float64), correct[order], weight[order]


def power_mean(gaps, norm, share, bias=0.0):
    """(sum of share (|gaps|^norm - bias))^(1/norm), or the largest |gap|."""
    gaps = np.abs(gaps)
    if norm == math.inf:
        return float(gaps[share > 0].max())
    mean = np.sum(share * (gaps**norm - bias))
    return float(max(mean, 0.0) ** (1 / norm))


def _not_zero(divisor):
    """A divisor of sums that are 0 where it is 0."""
    return np.where(divisor > 0, divisor, 1.0)
