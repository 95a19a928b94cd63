"""Calibration errors over soft bins, which can be differentiated."""

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import base

CHANCE = "chance"
# The smallest bin mass that is divided by, in examples.
SMALLEST_MASS = 1e-5
# Share of a uniform membership that the authors' released code mixes in.
MEMBERSHIP_SMOOTHING = 1e-5
# Memberships `(n, columns, bins)` are computed for as many columns at once, and
# again for the gradient. A few arrays of this size are alive at a time.
_BLOCK_BYTES = 16 * 2**20


def soft_membership(values, num_bins, temperature, lower=0.0):
    """Membership of each value in bins of equal width on [lower, 1].

    u_j(c) = softmax_j(-(c - centre_j)^2 / temperature), on a new last axis.
    """
    if num_bins == 1:  # Keras warns of a softmax over one entry.
        return ops.ones_like(ops.expand_dims(values, -1))
    width = (1.0 - lower) / num_bins
    centres = lower + width * (ops.arange(num_bins, dtype="float32") + 0.5)
    distance = ops.expand_dims(values, -1) - centres
    return ops.softmax(ops.square(distance) * (-1.0 / temperature), axis=-1)


def sb_ece(
    y_true,
    y_pred,
    from_logits=False,
    *,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="label",
    root=True,
    lower=0.0,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Differentiable expected calibration error over soft bins.

    With confidences c_i, correctness a_i and memberships
    u_ij = softmax_j(-(c_i - centre_j)^2 / temperature), a bin has the mass
    S_j = sum_i u_ij, the confidence C_j and the accuracy A_j, and

        bin:   (sum_j S_j / N |A_j - C_j|^norm)^(1/norm)            (eq. 11)
        label: (1/N sum_ij u_ij |A_j - c_i|^norm)^(1/norm)          (eq. 12)

    `root=False, lower="chance"` gives the authors' released code for eq. 12:
    bins on [1/K, 1], and memberships (1 - e) u + e / bins with e = 1e-5. Their
    code for eq. 11 is `binning="bin"`.

    Args:
        y_true: Class ids `(...)`, or label distributions `(..., classes)`.
        y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
        from_logits: Whether `y_pred` holds logits.
        num_bins: Number of bins.
        temperature: Softness of the bins; towards 0 they become hard.
        norm: The exponent, at least 1.
        binning: `"label"` or `"bin"`, as above; `estimator` in `ct.metrics`.
        root: Whether to take the root at the end.
        lower: Where the first bin begins: a number, or `"chance"` for 1/K.
        multi_label: Whether the last axis holds independent binary labels.
        ignore_class: Label of the examples that do not count, such as -1.
        sample_weight: Weights `(batch,)` or `(...)` of the examples.
        cross_replica: Whether to take all replicas' batches as one.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.sb_ece([0, 1, 1], probs)), 4)
        0.2652

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, section 4.1.
    """
    bins = _check_bins(num_bins, temperature, norm, binning, root)
    lower, smoothing = _check_lower(lower), 0.0
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    if lower == CHANCE:
        lower = 1.0 / batch.num_classes
        smoothing = MEMBERSHIP_SMOOTHING if binning == "label" else 0.0
    confidence = ops.expand_dims(batch.confidence(), -1)
    correct = ops.expand_dims(batch.correctness(), -1)
    return _error(confidence, correct, batch, bins, lower, smoothing)


@keras.saving.register_keras_serializable("caltrain_tf")
class SBECE(base.Loss):
    """`sb_ece` as a Keras loss; see there for the arguments."""

    function = staticmethod(sb_ece)

    def __init__(
        self,
        num_bins=15,
        temperature=0.01,
        norm=2,
        binning="label",
        root=True,
        lower=0.0,
        from_logits=False,
        name="sb_ece",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        bins = _check_bins(num_bins, temperature, norm, binning, root)
        vars(self).update(bins)
        self.lower = _check_lower(lower)


def sb_marginal_ece(
    y_true,
    y_pred,
    from_logits=False,
    *,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="bin",
    root=True,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Calibration error of every class probability over soft bins.

    Each class k has the soft bins of `sb_ece` for its own probabilities p_ik
    and labels y_ik, and all classes count the same:

        (1/K sum_k sum_j S_kj / N |A_kj - C_kj|^norm)^(1/norm)

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.
        num_bins: Number of bins on [0, 1].
        temperature: Softness of the bins; towards 0 they become hard.
        norm: The exponent, at least 1.
        binning: `"bin"` or `"label"`, as in `sb_ece`.
        root: Whether to take the root at the end.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.sb_marginal_ece([0, 1, 1], probs)), 4)
        0.4403

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, appendix on multiclass calibration error.
    """
    bins = _check_bins(num_bins, temperature, norm, binning, root)
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    labels = batch.label_distribution()
    return _error(batch.probabilities(), labels, batch, bins)


@keras.saving.register_keras_serializable("caltrain_tf")
class SBMarginalECE(base.Loss):
    """`sb_marginal_ece` as a Keras loss; see there for the arguments."""

    function = staticmethod(sb_marginal_ece)

    def __init__(
        self,
        num_bins=15,
        temperature=0.01,
        norm=2,
        binning="bin",
        root=True,
        from_logits=False,
        name="sb_marginal_ece",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        bins = _check_bins(num_bins, temperature, norm, binning, root)
        vars(self).update(bins)


def _check_bins(num_bins, temperature, norm, binning, root):
    return {
        "num_bins": checks.count("num_bins", num_bins),
        "temperature": checks.number("temperature", temperature, low=0),
        "norm": checks.number("norm", norm, low=1, closed=True),
        "binning": checks.choice("binning", binning, ("bin", "label")),
        "root": checks.flag("root", root),
    }


def _check_lower(lower):
    if isinstance(lower, str):
        return checks.choice("lower", lower, (CHANCE,))
    return checks.share("lower", lower)


def _error(predicted, outcome, batch, bins, lower=0.0, smoothing=0.0):
    """Equation 11 or 12 of probabilities and outcomes `(n, columns)`."""
    num_bins, temperature, norm, binning, root = bins.values()

    def memberships(predicted, weight):
        u = soft_membership(predicted, num_bins, temperature, lower)
        u = (1.0 - smoothing) * u + smoothing / num_bins if smoothing else u
        return u * ops.reshape(weight, (-1, 1, 1))

    def sums(predicted, values, weight):
        u = memberships(predicted, weight)
        sum_of_values = ops.sum(u * ops.expand_dims(values, -1), axis=0)
        return ops.stack([ops.sum(u, axis=0), sum_of_values])

    def power(gap):
        return ops.square(gap) if norm == 2 else ops.power(ops.abs(gap), norm)

    def sum_of_powers(predicted, accuracy, weight):
        gap = ops.transpose(accuracy) - ops.expand_dims(predicted, -1)
        return ops.sum(memberships(predicted, weight) * power(gap), axis=0)

    scale = 1.0
    values = predicted - outcome if binning == "bin" else outcome
    both = _by_columns(sums, num_bins, batch.weight, predicted, values)
    mass, values = ops.unstack(batch.sum_over_replicas(both), 2, axis=0)
    means = values / ops.maximum(mass, SMALLEST_MASS)
    if binning == "bin":
        # A high power of a small gap would underflow. Since the root of the sum
        # is homogeneous, the divisor needs no gradient of its own.
        if norm > 2:
            scale = ops.stop_gradient(ops.max(ops.abs(means)))
        total = ops.sum(mass * power(ops.divide_no_nan(means, scale)))
    else:
        arrays = predicted, ops.transpose(means)
        total = _by_columns(sum_of_powers, num_bins, batch.weight, *arrays)
        total = batch.sum_over_replicas(ops.sum(total))
    # The memberships of an example sum to 1, so that their sum is a constant.
    error = ops.divide_no_nan(total, ops.stop_gradient(ops.sum(mass)))
    return base.root(error, norm) * scale if root else error * scale**norm


def _by_columns(function, num_bins, weight, *arrays):
    """Joins `function(*arrays, weight)` `(..., columns, bins)` of blocks."""
    num_examples = weight.shape[0] or 1024  # If not known yet.
    num_columns = arrays[0].shape[-1]
    size = max(1, _BLOCK_BYTES // (4 * num_examples * num_bins))
    if size >= num_columns:
        return function(*arrays, weight)
    # The gradient of a block computes its memberships again.
    function = keras.remat(function)
    blocks = [
        function(*(x[..., start : start + size] for x in arrays), weight)
        for start in range(0, num_columns, size)
    ]
    return ops.concatenate(blocks, axis=-2)
