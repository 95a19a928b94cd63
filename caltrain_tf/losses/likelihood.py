"""Losses of each example: cross-entropy, squared error and their variants."""

import math

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import base

FLSD53 = "flsd53"
# Where 1 - p is 0, its power would have an infinite slope for gamma < 1.
_SMALLEST_DOUBT = 1e-7


def nll(
    y_true,
    y_pred,
    from_logits=False,
    *,
    label_smoothing=0.0,
    multi_label=False,
    ignore_class=None,
):
    """Negative log-likelihood of the labels, in nats.

    nll = -sum_k y_k log p_k

    Args:
        y_true: Class ids `(...)`, or label distributions `(..., classes)`.
        y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
        from_logits: Whether `y_pred` holds logits.
        label_smoothing: s in [0, 1); labels become (1 - s) y + s / classes.
        multi_label: Whether the last axis holds independent binary labels.
        ignore_class: Label of the examples that do not count, such as -1.

    Returns:
        A value for each example, `(...)`; 0 for those that do not count.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.nll([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.6931, 1.6094], dtype=float32)
    """
    label_smoothing = checks.share("label_smoothing", label_smoothing)
    shared = from_logits, multi_label, ignore_class
    batch = inputs.standardize(y_true, y_pred, *shared)
    targets = batch.label_distribution()
    if label_smoothing:
        targets = (1.0 - label_smoothing) * targets
        targets = targets + label_smoothing / batch.num_classes
    values = -ops.sum(targets * batch.log_probabilities(), axis=-1)
    return base.per_example(values, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class NLL(base.Loss):
    """`nll` as a Keras loss; see there for the arguments."""

    function = staticmethod(nll)

    def __init__(
        self,
        label_smoothing=0.0,
        from_logits=False,
        name="nll",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.label_smoothing = checks.share("label_smoothing", label_smoothing)


def mse(
    y_true, y_pred, from_logits=False, *, multi_label=False, ignore_class=None
):
    """Squared distance between the probabilities and the label.

    mse = sum_k (p_k - y_k)^2

    Its mean over a data set is the Brier score.

    Args:
        y_true, y_pred, from_logits, multi_label, ignore_class: As in `nll`.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.mse([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.5 , 1.28], dtype=float32)

    Reference:
        Hui and Belkin, "Evaluation of Neural Architectures Trained with Square
        Loss vs Cross-Entropy in Classification Tasks", 2021.
    """
    shared = from_logits, multi_label, ignore_class
    batch = inputs.standardize(y_true, y_pred, *shared)
    difference = batch.probabilities() - batch.label_distribution()
    return base.per_example(ops.sum(ops.square(difference), axis=-1), batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class MSE(base.Loss):
    """`mse` as a Keras loss; see there for the arguments."""

    function = staticmethod(mse)


def focal(
    y_true,
    y_pred,
    from_logits=False,
    *,
    gamma=3.0,
    multi_label=False,
    ignore_class=None,
):
    """Cross-entropy that gives less weight to examples predicted well.

    focal = -sum_k y_k (1 - p_k)^gamma log p_k

    Args:
        y_true, y_pred, from_logits, multi_label, ignore_class: As in `nll`.
        gamma: The exponent, at least 0 (which gives `nll`), or `"flsd53"`: 5
            where p_k < 0.2, else 3.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.focal([0, 1], [[0.5, 0.5], [0.9, 0.1]]).numpy().round(4)
        array([0.0866, 1.6786], dtype=float32)

    Reference:
        Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss",
        2020.
    """
    gamma = _check_focal_gamma(gamma)
    shared = from_logits, multi_label, ignore_class
    batch = inputs.standardize(y_true, y_pred, *shared)
    log_probs = batch.log_probabilities()
    if gamma == FLSD53:
        is_unlikely = ops.stop_gradient(log_probs) < math.log(0.2)
        gamma = ops.where(is_unlikely, 5.0, 3.0)
    # 1 - exp(log p), without the cancellation close to p = 1.
    doubt = ops.maximum(-ops.expm1(log_probs), _SMALLEST_DOUBT)
    values = batch.label_distribution() * ops.power(doubt, gamma) * log_probs
    return base.per_example(-ops.sum(values, axis=-1), batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class Focal(base.Loss):
    """`focal` as a Keras loss; see there for the arguments."""

    function = staticmethod(focal)

    def __init__(
        self,
        gamma=3.0,
        from_logits=False,
        name="focal",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.gamma = _check_focal_gamma(gamma)


def dual_focal(
    y_true,
    y_pred,
    from_logits=False,
    *,
    gamma=5.0,
    multi_label=False,
    ignore_class=None,
):
    """Focal loss whose factor also counts the nearest class below the label's.

    With q_k the largest probability below p_k, or 0 where there is none,

        dual_focal = -sum_k y_k (1 - p_k + q_k)^gamma log p_k

    It makes predictions less under-confident than focal loss. The gradient also
    flows through q. The authors' code sums the values over the batch.

    Args:
        y_true, y_pred, from_logits, multi_label, ignore_class: As in `nll`.
        gamma: The exponent, at least 0 (which gives `nll`).

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]
        >>> ct.losses.dual_focal([0, 1], probs).numpy().round(4)
        array([0.2271, 0.9503], dtype=float32)

    Reference:
        Tao et al., "Dual Focal Loss for Calibration", 2023.
    """
    gamma = checks.number("gamma", gamma, low=0, closed=True)
    shared = from_logits, multi_label, ignore_class
    batch = inputs.standardize(y_true, y_pred, *shared)
    log_probs = batch.log_probabilities()
    # Logits are compared, since saturated probabilities may be equal.
    below = _next_below(batch.predictions, batch.probabilities())
    doubt = ops.maximum(below - ops.expm1(log_probs), _SMALLEST_DOUBT)
    values = batch.label_distribution() * ops.power(doubt, gamma) * log_probs
    return base.per_example(-ops.sum(values, axis=-1), batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class DualFocal(base.Loss):
    """`dual_focal` as a Keras loss; see there for the arguments."""

    function = staticmethod(dual_focal)

    def __init__(
        self,
        gamma=5.0,
        from_logits=False,
        name="dual_focal",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.gamma = checks.number("gamma", gamma, low=0, closed=True)


def bsce_gra(
    y_true,
    y_pred,
    from_logits=False,
    *,
    gamma=5.0,
    norm=1,
    multi_label=False,
    ignore_class=None,
):
    """Cross-entropy whose gradient is weighted by a generalised Brier score.

    With the distance between label and prediction taken as a constant,

        bsce_gra = -stop_gradient(||y - p||_norm ^ gamma) sum_k y_k log p_k

    Unlike that of focal loss, the weight is not differentiated. The authors'
    code sums the values over the batch, with a `gamma` of 0 by default.

    Args:
        y_true, y_pred, from_logits, multi_label, ignore_class: As in `nll`.
        gamma: The exponent, at least 0 (which gives `nll`).
        norm: Norm of the distance, at least 1.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.5], [0.8, 0.2]]
        >>> ct.losses.bsce_gra([0, 1], probs).numpy().round(4)
        array([ 0.6931, 16.8763], dtype=float32)

    Reference:
        Lin et al., "Uncertainty Weighted Gradients for Model Calibration",
        2025.
    """
    gamma = checks.number("gamma", gamma, low=0, closed=True)
    norm = checks.number("norm", norm, low=1, closed=True)
    shared = from_logits, multi_label, ignore_class
    batch = inputs.standardize(y_true, y_pred, *shared)
    smallest = batch.smallest
    if smallest == inputs.SMALLEST_FLOAT16_PROBABILITY:
        # The weight, up to 2^(gamma / norm), multiplies the slope 1 / p, which
        # would not be finite in float16.
        smallest = min(smallest * 2 ** min(gamma / norm, 16), 0.5)
    targets = batch.label_distribution()
    distance = ops.abs(targets - ops.stop_gradient(batch.probabilities()))
    # Dividing by the largest entry keeps high powers from underflowing.
    largest = ops.max(distance, axis=-1, keepdims=True)
    powers = ops.power(ops.divide_no_nan(distance, largest), norm)
    distance = largest[:, 0] * ops.sum(powers, axis=-1) ** (1.0 / norm)
    log_probs = batch.log_probabilities(smallest)
    cross_entropy = -ops.sum(targets * log_probs, axis=-1)
    return base.per_example(ops.power(distance, gamma) * cross_entropy, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class BSCEGRA(base.Loss):
    """`bsce_gra` as a Keras loss; see there for the arguments."""

    function = staticmethod(bsce_gra)

    def __init__(
        self,
        gamma=5.0,
        norm=1,
        from_logits=False,
        name="bsce_gra",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.gamma = checks.number("gamma", gamma, low=0, closed=True)
        self.norm = checks.number("norm", norm, low=1, closed=True)


def _check_focal_gamma(gamma):
    if isinstance(gamma, str):
        return checks.choice("gamma", gamma, (FLSD53,))
    return checks.number("gamma", gamma, low=0, closed=True)


def _next_below(logits, probs):
    """For each class the largest probability below its own, `(n, classes)`."""
    order = ops.argsort(ops.stop_gradient(logits), axis=-1)
    logits, probs = (ops.take_along_axis(x, order, -1) for x in (logits, probs))
    is_above = logits[:, 1:] > logits[:, :-1]
    below = ops.where(is_above, probs[:, :-1], 0.0)
    below = ops.pad(below, ((0, 0), (1, 0)))
    # Classes of equal probability share that of the first of them, by a running
    # maximum over 1, 2, 4, ... places: that of Keras fails under XLA.
    step = 1
    while step < logits.shape[1]:
        earlier = ops.pad(below[:, :-step], ((0, 0), (step, 0)))
        below, step = ops.maximum(below, earlier), 2 * step
    return ops.take_along_axis(below, ops.argsort(order, axis=-1), axis=-1)
