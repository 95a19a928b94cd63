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
    batch = inputs.standardize(
        y_true, y_pred, from_logits, multi_label, ignore_class
    )
    targets = batch.label_distribution()
    if label_smoothing:
        targets = (1.0 - label_smoothing) * targets
        targets = targets + label_smoothing / batch.num_classes
    values = -ops.sum(targets * batch.log_probabilities(), axis=-1)
    return base.per_example(values, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class NLL(base.FunctionLoss):
    """`nll` as a loss for `model.compile`: the negative log-likelihood.

    Args:
        label_smoothing: s in [0, 1); labels become (1 - s) y + s / classes.
        from_logits, multi_label, ignore_class: As in `nll`.
        name, reduction, dtype: As in `keras.losses.Loss`.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.losses.NLL(label_smoothing=0.1)
        >>> round(float(loss([0, 1], [[0.5, 0.5], [0.8, 0.2]])), 4)
        1.1166
    """

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
        dtype=None,
    ):
        super().__init__(
            from_logits, name, multi_label, ignore_class, reduction, dtype
        )
        self.label_smoothing = checks.share("label_smoothing", label_smoothing)


def mse(
    y_true, y_pred, from_logits=False, *, multi_label=False, ignore_class=None
):
    """Squared distance between the probabilities and the label.

    mse = sum_k (p_k - y_k)^2

    Its mean over a data set is the Brier score.

    Args:
        y_true: Class ids `(...)`, or label distributions `(..., classes)`.
        y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
        from_logits: Whether `y_pred` holds logits.
        multi_label: Whether the last axis holds independent binary labels.
        ignore_class: Label of the examples that do not count, such as -1.

    Returns:
        A value for each example, `(...)`; 0 for those that do not count.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.mse([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.5 , 1.28], dtype=float32)

    Reference:
        Hui and Belkin, "Evaluation of Neural Architectures Trained with Square
        Loss vs Cross-Entropy in Classification Tasks", 2021.
    """
    batch = inputs.standardize(
        y_true, y_pred, from_logits, multi_label, ignore_class
    )
    difference = batch.probabilities() - batch.label_distribution()
    return base.per_example(ops.sum(ops.square(difference), axis=-1), batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class MSE(base.FunctionLoss):
    """`mse` as a loss for `model.compile`: the squared error.

    Args:
        from_logits, multi_label, ignore_class: As in `mse`.
        name, reduction, dtype: As in `keras.losses.Loss`.

    Example:
        >>> import caltrain_tf as ct
        >>> float(ct.losses.MSE()([0, 1], [[0.5, 0.5], [0.8, 0.2]]))
        0.89
    """

    function = staticmethod(mse)

    def __init__(
        self,
        from_logits=False,
        name="mse",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
        dtype=None,
    ):
        super().__init__(
            from_logits, name, multi_label, ignore_class, reduction, dtype
        )


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
        y_true: Class ids `(...)`, or label distributions `(..., classes)`.
        y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
        from_logits: Whether `y_pred` holds logits.
        gamma: The exponent, at least 0 (which gives `nll`). `"flsd53"` is a
            sample-dependent exponent: 5 where the label's class has p < 0.2,
            else 3.
        multi_label: Whether the last axis holds independent binary labels.
        ignore_class: Label of the examples that do not count, such as -1.

    Returns:
        A value for each example, `(...)`; 0 for those that do not count.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.5], [0.9, 0.1]]
        >>> ct.losses.focal([0, 1], probs).numpy().round(4)
        array([0.0866, 1.6786], dtype=float32)
        >>> ct.losses.focal([0, 1], probs, gamma="flsd53").numpy().round(4)
        array([0.0866, 1.3597], dtype=float32)

    Reference:
        Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss",
        2020.
    """
    gamma = _check_gamma(gamma, (FLSD53,))
    batch = inputs.standardize(
        y_true, y_pred, from_logits, multi_label, ignore_class
    )
    log_probs = batch.log_probabilities()
    of_label = _of_label(log_probs, batch)
    if gamma == FLSD53:
        is_unlikely = ops.stop_gradient(of_label) < math.log(0.2)
        gamma = ops.where(is_unlikely, 5.0, 3.0)
    targets = batch.labels
    if len(batch.labels.shape) == 1:
        # The other classes would only be multiplied by 0.
        log_probs, targets = of_label, 1.0
    # 1 - exp(log p), without the cancellation close to p = 1.
    doubt = ops.maximum(-ops.expm1(log_probs), _SMALLEST_DOUBT)
    values = -ops.sum(targets * ops.power(doubt, gamma) * log_probs, axis=-1)
    return base.per_example(values, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class Focal(base.FunctionLoss):
    """`focal` as a loss for `model.compile`: the focal loss.

    Args:
        gamma: The exponent, at least 0, or `"flsd53"` for a sample-dependent
            exponent: 5 where the label's class has p < 0.2, else 3.
        from_logits, multi_label, ignore_class: As in `focal`.
        name, reduction, dtype: As in `keras.losses.Loss`.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.losses.Focal(gamma=2.0)
        >>> round(float(loss([0, 1], [[0.5, 0.5], [0.9, 0.1]])), 4)
        1.0192
    """

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
        dtype=None,
    ):
        super().__init__(
            from_logits, name, multi_label, ignore_class, reduction, dtype
        )
        self.gamma = _check_gamma(gamma, (FLSD53,))


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

    Focal loss makes predictions under-confident; measuring how well an example
    is predicted by the gap between p and q makes them less so. The gradient
    also flows through q, as in the authors' code, which gives the same values
    for class ids but sums them over the batch by default.

    Args:
        y_true: Class ids `(...)`, or label distributions `(..., classes)`.
        y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
        from_logits: Whether `y_pred` holds logits.
        gamma: The exponent, at least 0 (which gives `nll`).
        multi_label: Whether the last axis holds independent binary labels.
        ignore_class: Label of the examples that do not count, such as -1.

    Returns:
        A value for each example, `(...)`; 0 for those that do not count.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]
        >>> ct.losses.dual_focal([0, 1], probs).numpy().round(4)
        array([0.2271, 0.9503], dtype=float32)

    Reference:
        Tao et al., "Dual Focal Loss for Calibration", 2023.
    """
    gamma = _check_gamma(gamma)
    batch = inputs.standardize(
        y_true, y_pred, from_logits, multi_label, ignore_class
    )
    y_pred, probs = batch.predictions, batch.probabilities()
    log_probs, targets = batch.log_probabilities(), batch.labels
    if len(batch.labels.shape) == 1:
        # Logits are compared, since saturated probabilities may be equal.
        is_below = y_pred < _of_label(y_pred, batch)
        below = ops.max(ops.where(is_below, probs, 0.0), -1, keepdims=True)
        log_probs, targets = _of_label(log_probs, batch), 1.0
    else:
        below = _next_below(y_pred, probs)
    # 1 - exp(log p), without the cancellation close to p = 1.
    doubt = ops.maximum(below - ops.expm1(log_probs), _SMALLEST_DOUBT)
    values = -ops.sum(targets * ops.power(doubt, gamma) * log_probs, axis=-1)
    return base.per_example(values, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class DualFocal(base.FunctionLoss):
    """`dual_focal` as a loss for `model.compile`: the dual focal loss.

    Args:
        gamma: The exponent, at least 0.
        from_logits, multi_label, ignore_class: As in `dual_focal`.
        name, reduction, dtype: As in `keras.losses.Loss`.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.losses.DualFocal(gamma=2.0)
        >>> round(float(loss([0, 1], [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]])), 4)
        0.8736
    """

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
        dtype=None,
    ):
        super().__init__(
            from_logits, name, multi_label, ignore_class, reduction, dtype
        )
        self.gamma = _check_gamma(gamma)


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

    Focal loss weights the loss, and therefore also differentiates the weight;
    this loss weights the gradient of the cross-entropy. The authors' code gives
    the same values for class ids, but by default it sums them over the batch
    and has a `gamma` of 0.

    Args:
        y_true: Class ids `(...)`, or label distributions `(..., classes)`.
        y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
        from_logits: Whether `y_pred` holds logits.
        gamma: The exponent, at least 0 (which gives `nll`).
        norm: Norm of the distance, at least 1. For `norm=1` and class ids, the
            distance is 2 (1 - p) with the probability p of the label's class.
        multi_label: Whether the last axis holds independent binary labels.
        ignore_class: Label of the examples that do not count, such as -1.

    Returns:
        A value for each example, `(...)`; 0 for those that do not count.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.5], [0.8, 0.2]]
        >>> ct.losses.bsce_gra([0, 1], probs).numpy().round(4)
        array([ 0.6931, 16.8763], dtype=float32)

    Reference:
        Lin et al., "Uncertainty Weighted Gradients for Model Calibration",
        2025.
    """
    gamma = _check_gamma(gamma)
    norm = checks.number("norm", norm, low=1, closed=True)
    batch = inputs.standardize(
        y_true, y_pred, from_logits, multi_label, ignore_class
    )
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
class BSCEGRA(base.FunctionLoss):
    """`bsce_gra` as a loss for `model.compile`: BSCE-GRA.

    Args:
        gamma: The exponent, at least 0.
        norm: Norm of the distance between label and prediction, at least 1.
        from_logits, multi_label, ignore_class: As in `bsce_gra`.
        name, reduction, dtype: As in `keras.losses.Loss`.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.losses.BSCEGRA(gamma=2.0, norm=2)
        >>> round(float(loss([0, 1], [[0.5, 0.5], [0.8, 0.2]])), 4)
        1.2033
    """

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
        dtype=None,
    ):
        super().__init__(
            from_logits, name, multi_label, ignore_class, reduction, dtype
        )
        self.gamma = _check_gamma(gamma)
        self.norm = checks.number("norm", norm, low=1, closed=True)


def _check_gamma(gamma, names=()):
    if isinstance(gamma, str) and names:
        return checks.choice("gamma", gamma, names)
    return checks.number("gamma", gamma, low=0, closed=True)


def _of_label(values, batch):
    """The column `(n, 1)` of `values` that belongs to the label."""
    ids = ops.expand_dims(batch.class_ids(), -1)
    is_label = ids == inputs.class_range(values.shape[1])
    return ops.sum(ops.where(is_label, values, 0.0), axis=-1, keepdims=True)


def _next_below(y_pred, probs):
    """For each class the largest probability below its own, `(n, classes)`."""
    order = ops.argsort(ops.stop_gradient(y_pred), axis=-1)
    ordered = ops.take_along_axis(y_pred, order, axis=-1)
    is_above = ordered[:, 1:] > ordered[:, :-1]
    # One more than the place of the next class below, or 0 if there is none.
    # Classes of equal probability share that of the first of them, which a
    # running maximum over 1, 2, 4, ... places hands on: Keras has none.
    place = ops.arange(1, y_pred.shape[1], dtype="int32")
    place = ops.pad(ops.where(is_above, place, 0), ((0, 0), (1, 0)))
    step = 1
    while step < y_pred.shape[1]:
        earlier = ops.pad(place[:, :-step], ((0, 0), (step, 0)))
        place = ops.maximum(place, earlier)
        step *= 2
    values = ops.take_along_axis(probs, order, axis=-1)
    values = ops.pad(values, ((0, 0), (1, 0)))
    below = ops.take_along_axis(values, place, axis=-1)
    return ops.take_along_axis(below, ops.argsort(order, axis=-1), axis=-1)
