"""What users hand over as `y_true`, `y_pred` and `sample_weight`, made uniform.

A compiled graph cannot raise on values. There, an invalid label turns the loss
into NaN instead of silently counting as some class; called eagerly, the same
functions raise an error that names the row.
"""

import keras
from keras import ops

from caltrain_tf.ops.precision import to_float32

# How far a row of probabilities or soft labels may be from summing to 1. Wide
# enough for bfloat16, narrow enough to catch logits that were not declared.
SUM_TOLERANCE = 0.02
# Infinite logits (-1e30 in float16 is one) would give inf - inf.
LARGEST_LOGIT = 1e30


def standardize(y_true, y_pred, from_logits=False, sample_weight=None):
    """Checks a batch and returns `(y_true, y_pred, weight)` in one form.

    Args:
        y_true: Class ids `(batch,)` or `(batch, 1)`, or label distributions
            `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        from_logits: Whether `y_pred` holds logits.
        sample_weight: None, or weights `(batch,)` or `(batch, 1)`. What a row
            of weight 0 holds is blanked, so that not even NaN leaks out of it.

    Returns:
        Ids `(batch,)` or distributions `(batch, classes)`, predictions (finite
        ones, if they are logits), and weights `(batch,)`, all float32.
    """
    y_pred = ops.convert_to_tensor(y_pred)
    y_true = ops.convert_to_tensor(y_true)
    _check_shapes(y_true, y_pred)
    y_pred = to_float32(y_pred)
    if from_logits:
        # Not `clip`, which some compilers turn NaN into a number with: a
        # diverged model has to show.
        y_pred = ops.where(y_pred > LARGEST_LOGIT, LARGEST_LOGIT, y_pred)
        y_pred = ops.where(y_pred < -LARGEST_LOGIT, -LARGEST_LOGIT, y_pred)
    y_true = ops.cast(y_true, "float32")
    if y_true.shape[-1] == 1 and len(y_true.shape) == 2:
        y_true = ops.squeeze(y_true, -1)
    if sample_weight is None:
        weight = ops.ones_like(y_pred[:, 0])
    else:
        weight = _standardize_weight(sample_weight, y_pred)
        y_true, y_pred = _blank_ignored_rows(y_true, y_pred, weight)
    _check_values_if_known(y_true, y_pred, from_logits)
    return y_true, y_pred, weight


def class_ids(y_true):
    """Class ids `(batch,)` of standardized labels, as float32.

    Of a label distribution, the most probable class, as Keras' accuracy has it.
    """
    if len(y_true.shape) == 1:
        return y_true
    return first_argmax(y_true)


def label_distribution(y_true, num_classes):
    """Distributions `(batch, classes)` of standardized labels."""
    if len(y_true.shape) == 2:
        return y_true
    return ops.cast(
        ops.expand_dims(y_true, -1) == class_range(num_classes), "float32"
    )


def nan_where_invalid(values, y_true, num_classes):
    """Replaces the values `(batch,)` of rows with invalid labels by NaN."""
    if len(y_true.shape) == 1:
        valid = (y_true >= 0) & (y_true < num_classes)
        valid = valid & (y_true == ops.floor(y_true))
    else:
        valid = ops.abs(ops.sum(y_true, axis=-1) - 1.0) <= SUM_TOLERANCE
    return ops.where(valid, values, float("nan"))


def first_argmax(x):
    """`argmax` over the last axis, as float32; ties go to the first class.

    A comparison and a minimum vectorise where XLA's own argmax does not.
    """
    num_classes = x.shape[-1]
    is_largest = x == ops.max(x, axis=-1, keepdims=True)
    return ops.min(
        ops.where(is_largest, class_range(num_classes), float(num_classes)),
        axis=-1,
    )


def class_range(num_classes):
    """The class ids 0, 1, ... as float32, exact far beyond any class count."""
    return ops.arange(num_classes, dtype="float32")


def _check_shapes(y_true, y_pred):
    if len(y_pred.shape) != 2:
        raise ValueError(
            "`y_pred` must have the shape (batch, classes). "
            f"Received: y_pred.shape={tuple(y_pred.shape)}"
        )
    num_classes = y_pred.shape[1]
    if num_classes is None or num_classes < 2:
        raise ValueError(
            "`y_pred` must have a known number of classes, at least 2. "
            f"Received: y_pred.shape={tuple(y_pred.shape)}"
        )
    if len(y_true.shape) not in (1, 2) or (
        len(y_true.shape) == 2 and y_true.shape[1] not in (1, num_classes)
    ):
        raise ValueError(
            "`y_true` must hold class ids (batch,) or label distributions "
            f"(batch, {num_classes}), as many classes as `y_pred` has. "
            f"Received: y_true.shape={tuple(y_true.shape)}, "
            f"y_pred.shape={tuple(y_pred.shape)}"
        )
    _check_batch_size("y_true", y_true, y_pred)


def _check_batch_size(name, tensor, y_pred):
    sizes = (tensor.shape[0], y_pred.shape[0])
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(
            f"`{name}` and `y_pred` must have the same batch size. "
            f"Received: {name}.shape={tuple(tensor.shape)}, "
            f"y_pred.shape={tuple(y_pred.shape)}"
        )


def _standardize_weight(sample_weight, y_pred):
    weight = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    if len(weight.shape) == 0:
        return weight * ops.ones_like(y_pred[:, 0])
    if len(weight.shape) == 2 and weight.shape[1] == 1:
        weight = ops.squeeze(weight, -1)
    if len(weight.shape) != 1:
        raise ValueError(
            "`sample_weight` must have the shape (batch,). "
            f"Received: sample_weight.shape={tuple(weight.shape)}"
        )
    _check_batch_size("sample_weight", weight, y_pred)
    return weight


def _blank_ignored_rows(y_true, y_pred, weight):
    counts = weight != 0
    column = ops.expand_dims(counts, -1)
    # A uniform row is a valid prediction and a valid label distribution.
    uniform = 1.0 / y_pred.shape[1]
    y_pred = ops.where(column, y_pred, uniform)
    if len(y_true.shape) == 1:
        return ops.where(counts, y_true, 0.0), y_pred
    return ops.where(column, y_true, uniform), y_pred


def _check_values_if_known(y_true, y_pred, from_logits):
    labels = _to_numpy_if_known(y_true)
    if labels is not None:
        _check_labels(labels, y_pred.shape[1])
    if from_logits:
        return
    probabilities = _to_numpy_if_known(y_pred)
    if probabilities is not None:
        _check_probabilities("y_pred", probabilities)


def _to_numpy_if_known(tensor):
    """The tensor's values, or None while a graph is being traced.

    Never known on PyTorch: Keras traces there with tensors of ones, and a look
    at every batch of a training run would stall a GPU.
    """
    if keras.backend.backend() == "torch":
        return None
    try:
        return ops.convert_to_numpy(tensor)
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None


def _check_labels(labels, num_classes):
    if labels.ndim == 2:
        _check_probabilities("y_true", labels)
        return
    invalid = ~((labels >= 0) & (labels < num_classes) & (labels % 1 == 0))
    if invalid.any():
        row = int(invalid.argmax())
        raise ValueError(
            f"`y_true` must hold class ids from 0 to {num_classes - 1}. "
            f"Received: y_true[{row}]={labels[row]:g}"
        )


def _check_probabilities(name, rows):
    # Written so that NaN passes: a diverged model shows as a NaN loss.
    outside = (rows < -SUM_TOLERANCE) | (rows > 1.0 + SUM_TOLERANCE)
    invalid = outside.any(axis=1) | (
        abs(rows.sum(axis=1) - 1.0) > SUM_TOLERANCE
    )
    if invalid.any():
        row = int(invalid.argmax())
        hint = (
            " If they are logits, pass `from_logits=True`."
            if name == "y_pred"
            else ""
        )
        raise ValueError(
            f"`{name}` must hold probabilities that sum to 1.{hint} "
            f"Received: {name}[{row}] from {rows[row].min():g} to "
            f"{rows[row].max():g}, summing to {rows[row].sum():g}"
        )
