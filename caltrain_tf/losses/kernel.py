"""Calibration errors over pairs and triples of examples, in O(N log N)."""

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import base

# A float32 sum of a million terms loses digits: sums are taken of blocks.
BLOCK = 1024
# With a smaller doubt, the confidence is 1 in float64, too.
_SMALLEST_DOUBT = 2.0**-53


def mmce(
    y_true,
    y_pred,
    from_logits=False,
    *,
    width=0.4,
    weighted=False,
    root=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Squared maximum mean calibration error of a batch, in O(N log N).

    With confidences c_i, correctness a_i and k_ij = exp(-|c_i - c_j| / width),

        sum_ij (c_i - a_i) (c_j - a_j) k_ij / N^2

    With `weighted=True`, (c_i - a_i) / N becomes (c_i - a_i) / number of
    examples with the same correctness as i. `ct.metrics.mmce`, which takes
    arrays, is the square root of this loss.

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.
        width: Width of the kernel, at least 0.01.
        weighted: Whether correct and incorrect examples count half each.
        root: Whether to take the square root.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.mmce([0, 1, 1], probs)), 4)
        0.0196

    Reference:
        Kumar et al., "Trainable Calibration Measures for Neural Networks from
        Kernel Mean Embeddings", 2018.
    """
    width = checks.number("width", width, low=0.01, closed=True)
    weighted = checks.flag("weighted", weighted)
    root = checks.flag("root", root)
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    confidence, correct, weight = batch.gather_over_replicas(
        batch.confidence(), batch.correctness(), batch.weight
    )
    count = ops.sum(weight)
    if weighted:
        hits = ops.sum(weight * correct)
        count = ops.where(correct == 1.0, hits, count - hits)
    share = ops.divide_no_nan(weight, count)
    excess = share * (confidence - correct)
    value = laplacian_quadratic_form(confidence, excess, width)
    return base.root(value, 2) if root else value


@keras.saving.register_keras_serializable("caltrain_tf")
class MMCE(base.Loss):
    """`mmce` as a Keras loss; see there for the arguments."""

    function = staticmethod(mmce)

    def __init__(
        self,
        width=0.4,
        weighted=False,
        from_logits=False,
        name="mmce",
        *,
        root=False,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.width = checks.number("width", width, low=0.01, closed=True)
        self.weighted = checks.flag("weighted", weighted)
        self.root = checks.flag("root", root)


def esd(
    y_true,
    y_pred,
    from_logits=False,
    *,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Expected squared difference of cumulated accuracy and confidence.

    With confidences c_i, correctness a_i, and for each example i the mean
    gbar_i and the unbiased variance s_i^2 over all j other than i of
    g_ij = (a_j - c_j) 1[c_j <= c_i],

        esd = mean_i [gbar_i^2 - s_i^2 / (N - 1)]

    Its expectation is 0 for a calibrated model; the value of a batch may be
    negative. Weights are those of triples of distinct examples, w_i w_j w_k;
    fewer than three examples have a loss of 0. In the authors' code, all
    confidences that round to 1 are ties; here, only those equal in float64.

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.8, 0.2]]
        >>> round(float(ct.losses.esd([0, 1, 0, 1], probs)), 4)
        0.1567

    Reference:
        Yoon et al., "ESD: Expected Squared Difference as a Tuning-Free
        Trainable Calibration Measure", 2023.
    """
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    confidence, doubt = _confidence_and_doubt(batch)
    doubt, gap, weight = batch.gather_over_replicas(
        doubt, batch.correctness() - confidence, batch.weight
    )
    doubt = ops.stop_gradient(doubt)
    order = ops.argsort(-doubt)
    doubt, gap, weight = (ops.take(x, order) for x in (doubt, gap, weight))
    gap = weight * gap
    # Each pair j, k is multiplied by the weight of all third examples i whose
    # confidence is at least that of both. For every k, the sums are over the j
    # of lower confidence and over the j tied with k.
    is_first = is_first_of_ties(doubt)
    is_last = ops.concatenate([is_first[1:], is_first[:1]])
    after = ops.flip(running_sum_before(ops.flip(weight)))
    before = ops.where(is_first, running_sum_before(gap), 0.0)
    after = ops.where(is_last, after, 0.0)
    sums = sums_over_ties(is_first, before, after, gap, weight)
    gap_below, above, gap_tied, tied = sums
    third = above + (tied - weight)
    pairs = 2.0 * gap_below * third + (gap_tied - gap) * (third - weight)
    doubles = weight * running_sum_before(weight)
    triples = 6.0 * ops.sum(weight * running_sum_before(doubles))
    is_defined = triples > 0.0
    mean = ops.sum(gap * pairs) / ops.where(is_defined, triples, 1.0)
    # Not a plain 0, so that a diverged model shows as NaN.
    return ops.where(is_defined, mean, 0.0 * mean)


@keras.saving.register_keras_serializable("caltrain_tf")
class ESD(base.Loss):
    """`esd` as a Keras loss; see there for the arguments."""

    function = staticmethod(esd)


def _confidence_and_doubt(batch):
    """The confidence, and a doubt that sorts in reverse order, both `(n,)`."""
    if not batch.from_logits:
        confidence = batch.confidence()
        return confidence, -confidence
    # 1 / confidence - 1, summed without the 1 of the largest class, so that it
    # also sorts saturated examples, whose confidence is 1 in float32.
    largest = ops.max(batch.predictions, axis=-1, keepdims=True)
    powers = ops.exp(batch.predictions - largest)
    total = ops.sum(powers, axis=-1)
    others = ops.sum(ops.where(powers == 1.0, 0.0, powers), axis=-1)
    # Of the classes that share the largest logit, all but one count 1 each.
    doubt = others + (ops.round(total - others) - 1.0)
    return 1.0 / total, ops.where(doubt < _SMALLEST_DOUBT, 0.0, doubt)


def laplacian_quadratic_form(points, coefficients, width):
    """sum_ij e_i e_j exp(-|x_i - x_j| / width) without the N x N matrix."""
    order = ops.argsort(ops.stop_gradient(points))
    x, e = ops.take(points, order), ops.take(coefficients, order)
    # The kernel of sorted points is a product, exp(-x_i/w) exp(x_j/w) for
    # x_j < x_i: a running sum gives the sum over all points to the left. Equal
    # points have a kernel of 1. Centred, so that both factors are in range.
    rising = ops.exp((x - 0.5) / width)
    falling = ops.exp((0.5 - x) / width)
    # Of equal points, the first one has the sum to the left of all.
    is_first = is_first_of_ties(x)
    before = ops.where(is_first, running_sum_before(e * rising), 0.0)
    left, equal = sums_over_ties(is_first, before, e)
    return ops.sum(e * (equal + 2.0 * falling * left))


def running_sum_before(values):
    """The sum of all earlier values at each place, `(n,)`."""

    def shifted(running):  # A difference would lose digits.
        return ops.concatenate([ops.zeros_like(running[:1]), running[:-1]])

    count = ops.shape(values)[0]
    padding = ops.zeros((-count % BLOCK,), values.dtype)
    blocks = ops.reshape(ops.concatenate([values, padding]), (-1, BLOCK))
    blocks = ops.cumsum(blocks, axis=1)
    before = shifted(ops.cumsum(blocks[:, -1]))
    return shifted(ops.reshape(blocks + before[:, None], (-1,))[:count])


def is_first_of_ties(points):
    """Whether each of the sorted points is the first one of its value."""
    is_first = points[1:] != points[:-1]
    return ops.concatenate([ops.ones_like(points[:1], "bool"), is_first])


def sums_over_ties(is_first, *values):
    """Sums each of `values` `(n,)`, for each point, over all equal to it."""
    count = ops.shape(is_first)[0]
    group = ops.cumsum(ops.cast(is_first, "int32")) - 1
    starts_part = ops.logical_or(is_first, ops.arange(count) % BLOCK == 0)
    part = ops.cumsum(ops.cast(starts_part, "int32")) - 1
    group_of_part = ops.segment_sum(
        ops.where(starts_part, group, 0), part, num_segments=count
    )
    sums = ops.segment_sum(ops.stack(values, axis=1), part, num_segments=count)
    sums = ops.segment_sum(sums, group_of_part, num_segments=count)
    sums = ops.take(ops.take(sums, group_of_part, axis=0), part, axis=0)
    return ops.unstack(sums, len(values), axis=1)
