"""Checks and standardizes `y_true`, `y_pred` and `sample_weight`.

`standardize` returns predictions `(n, K)` of at least two classes, class ids
`(n,)` or label distributions `(n, K)`, and weights `(n,)`. It is the only place
that handles other shapes, masks, labels that do not count and precisions other
than float32:

| `y_pred` | meaning | `y_true` | `sample_weight` |
|---|---|---|---|
| `(..., K)`, K >= 2 | K classes | ids `(...)` or rows `(..., K)` | `(...)` |
| `(..., 1)` | the probability or logit of class 1 | 0/1 `(...)` | `(...)` |
| `(..., L)`, `multi_label=True` | L binary problems | 0/1 `(..., L)` | both |

With `num_groups`, `y_true` is `(..., 2)` in the first two rows of the table: a
class id and a group id.

Invalid values are never silent. In eager mode, invalid labels, probabilities
and weights raise an error that names the row. A graph on CPU or GPU raises
`InvalidArgumentError`, as Keras' own losses do. Under XLA and JAX's `jit`,
where nothing can raise, `nan_where_invalid` turns the loss into NaN.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.ops.replicas import is_compiled_by_xla, sum_over_replicas

# Infinite logits, such as -1e30 in float16, would give inf - inf.
LARGEST_LOGIT = 1e30
# The smallest probability whose logarithm is taken: Keras' epsilon or, for
# float16, whose gradients end at 65504, its smallest normal number.
SMALLEST_PROBABILITY = 1e-7
SMALLEST_FLOAT16_PROBABILITY = 2.0**-14
# Operations that keep logits logits and probabilities probabilities.
_TRANSPARENT = ("Identity", "Cast", "Reshape", "Squeeze", "ExpandDims")
_PROBABILITIES = (
    "`from_logits=True`, but `y_pred` looks like probabilities, as after a "
    "softmax. Pass `from_logits=False`, or take the activation off the last "
    "layer."
)
_LOGITS = (
    "`from_logits=False`, but `y_pred` comes from a layer without activation "
    "and looks like logits. Pass `from_logits=True`, or give the last layer a "
    "softmax activation."
)


class Batch(NamedTuple):
    """A batch of n examples of K >= 2 classes, in float32.

    Attributes:
        labels: Class ids `(n,)`, or label distributions `(n, K)`.
        predictions: Probabilities, or finite logits, `(n, K)`.
        weight: `(n,)`, scaled so that the weights that are not 0 have a mean of
            1 and the scale of the user's weights does not matter.
        sample_weight: `(n,)` as given, and 0 where masked or ignored.
        mask: `(n,)`, 0 where a Keras mask or `ignore_class` leaves an example
            out, else 1; None without either.
        valid: `(n,)`, False where a label or a probability is invalid; None if
            all are known to be valid.
        given: The pair of labels and predictions `(n, K)` or, for binary
            problems, `(n, 1)`, for losses of Keras or of the user.
        shape: The shape `(...)` of the examples, to restore for results.
        from_logits: Whether `predictions` are logits.
        cross_replica: Whether sums are over the batches of all replicas.
        smallest: The smallest number whose logarithm is taken or that is
            divided by, so that gradients are finite in the input's precision.
        groups: Group ids `(n,)`, 0 where an example does not count; None
            without `num_groups`.
    """

    labels: Any
    predictions: Any
    weight: Any
    sample_weight: Any
    mask: Any
    valid: Any
    given: Any
    shape: Any
    from_logits: bool
    cross_replica: bool
    smallest: float
    groups: Any = None


def standardize(
    y_true,
    y_pred,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
    num_groups=None,
):
    """Checks the inputs of a loss or a metric and returns a `Batch`.

    With `num_groups`, `y_true` is `(..., 2)`: a class id and a group id.
    """
    mask = _get_keras_mask(y_pred)
    _warn_about_producer(y_pred, from_logits)
    y_true = _to_tensor("y_true", y_true)
    y_pred = _to_tensor("y_pred", y_pred)
    is_float16 = keras.backend.standardize_dtype(y_pred.dtype) == "float16"
    groups = None
    if num_groups is not None:
        y_true, groups = _split_groups(y_true, y_pred)
    labels, predictions, shape = _flatten(y_true, y_pred, multi_label)

    if mask is not None:
        mask = _per_example("mask", mask, shape)
    if ignore_class is not None:
        if len(labels.shape) != 1:
            raise ValueError(
                "`ignore_class` needs class ids as labels. Received: "
                f"y_true.shape={tuple(y_true.shape)}, {ignore_class=}"
            )
        counts = ops.cast(labels != ignore_class, "float32")
        mask = counts if mask is None else mask * counts
    weight = mask
    if sample_weight is not None:
        weight = _per_example("sample_weight", sample_weight, shape)
        _check_weight(weight)
        weight = weight if mask is None else weight * mask
    if from_logits:
        _warn_about_probabilities(predictions)
    if weight is None:
        weight = scaled = ops.ones_like(predictions[:, 0])
    else:
        labels, predictions = _blank_ignored(labels, predictions, weight)
        scaled = scale(weight, cross_replica)
    valid = _check_labels(labels, max(predictions.shape[-1], 2), shape)
    if groups is not None:
        groups = ops.where(weight != 0, groups, 0.0)
        valid = _both(valid, _check_groups(groups, num_groups))
    if from_logits:
        predictions = _make_finite(predictions)
    else:
        valid = _both(valid, _check_probabilities(predictions))
    given = (labels, predictions)
    if predictions.shape[-1] == 1:
        given = (ops.expand_dims(labels, -1), predictions)
        other = ops.zeros_like(predictions) if from_logits else 1 - predictions
        predictions = ops.concatenate([other, predictions], axis=-1)
    return Batch(
        labels=labels,
        predictions=predictions,
        weight=scaled,
        sample_weight=weight,
        mask=mask,
        valid=valid,
        given=given,
        shape=shape,
        from_logits=from_logits,
        cross_replica=cross_replica,
        smallest=(
            SMALLEST_FLOAT16_PROBABILITY if is_float16 else SMALLEST_PROBABILITY
        ),
        groups=groups,
    )


def nan_where_invalid(value, batch):
    """Returns a scalar or values `(n,)` with NaN where the batch is invalid.

    It uses a product instead of `where`, so that the gradient is NaN too.
    """
    if batch.valid is None:
        return value
    valid = batch.valid if len(value.shape) else ops.all(batch.valid)
    return value * ops.where(valid, 1.0, float("nan"))


def class_ids(labels):
    """Class ids `(n,)` as float32.

    For a label distribution it is the most probable class, as in Keras'
    accuracy.
    """
    return labels if len(labels.shape) == 1 else first_argmax(labels)


def label_distribution(labels, num_classes):
    """Label distributions `(n, classes)`."""
    if len(labels.shape) == 2:
        return labels
    return ops.cast(
        ops.expand_dims(labels, -1) == class_range(num_classes), "float32"
    )


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


def _get_keras_mask(tensor):
    """The mask that a Keras layer attached to `tensor`, or None."""
    # JAX arrays cannot carry attributes, so Keras keeps their masks in a table
    # that has no public name.
    from keras.src import backend

    return backend.get_keras_mask(tensor)


def _to_tensor(name, value):
    if not (ops.is_tensor(value) or keras.utils.is_keras_tensor(value)):
        value = checks.as_array(name, value)
    tensor = ops.convert_to_tensor(value)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if not ("float" in dtype or "int" in dtype or dtype == "bool"):
        raise ValueError(
            f"`{name}` must hold real numbers. Received: {name} of "
            f"dtype={dtype}"
        )
    return tensor


def _split_groups(y_true, y_pred):
    """Class ids `(...)` and group ids `(n,)` of `y_true` `(..., 2)`."""
    if len(y_true.shape) != len(y_pred.shape) or y_true.shape[-1] != 2:
        raise ValueError(
            "`y_true` must have the shape (batch, 2): a class id and a group "
            f"id. Received: y_true.shape={tuple(y_true.shape)}, "
            f"y_pred.shape={tuple(y_pred.shape)}"
        )
    groups = ops.reshape(ops.cast(y_true[..., 1], "float32"), (-1,))
    return y_true[..., 0], groups


def _flatten(y_true, y_pred, multi_label):
    """Labels `(n,)` or `(n, K)`, predictions `(n, K)`, the shape `(...)`."""
    shapes = (
        f"Received: y_true.shape={tuple(y_true.shape)}, "
        f"y_pred.shape={tuple(y_pred.shape)}"
    )
    if len(y_pred.shape) < 2 or not y_pred.shape[-1]:
        raise ValueError(
            "`y_pred` must have the shape (batch, classes), or (batch, 1) for "
            f"a binary problem, with a known number of classes. {shapes}"
        )
    if multi_label:
        y_pred = ops.expand_dims(y_pred, -1)
    leading, num_classes = tuple(y_pred.shape[:-1]), y_pred.shape[-1]
    if len(y_true.shape) == len(leading) + 1 and y_true.shape[-1] == 1:
        y_true = ops.squeeze(y_true, -1)
    has_rows = (
        len(y_true.shape) == len(leading) + 1
        and y_true.shape[-1] == num_classes
    )
    if not has_rows and len(y_true.shape) != len(leading):
        wanted = "0 or 1 for each label, of the shape of `y_pred`"
        if not multi_label:
            ids = ", ".join(["batch", *["..."] * (len(leading) > 1)])
            wanted = f"class ids ({ids},) or label distributions "
            wanted += f"({ids}, {num_classes}), as many classes as `y_pred` has"
        raise ValueError(f"`y_true` must hold {wanted}. {shapes}")
    for size, expected in zip(y_true.shape, leading, strict=False):
        if None not in (size, expected) and size != expected:
            raise ValueError(
                "`y_true` and `y_pred` must have the same batch size and "
                f"positions. {shapes}"
            )
    shape = ops.shape(y_pred)[:-1]
    y_true = ops.cast(y_true, "float32")
    y_pred = ops.cast(y_pred, "float32")
    if len(leading) > 1:
        y_pred = ops.reshape(y_pred, (-1, num_classes))
        y_true = ops.reshape(y_true, (-1, num_classes) if has_rows else (-1,))
    return y_true, y_pred, shape


def _per_example(name, values, shape):
    """Weights or a mask as `(n,)`, broadcast over missing axes."""
    values = ops.cast(_to_tensor(name, values), "float32")
    rank = len(values.shape)
    if rank == len(shape) + 1 and values.shape[-1] == 1:
        values, rank = ops.squeeze(values, -1), rank - 1
    fits = rank <= len(shape)
    for axis, (size, wanted) in enumerate(
        zip(values.shape, shape, strict=False)
    ):
        known = isinstance(wanted, int) and size is not None
        fits = fits and (not known or size == wanted or (axis and size == 1))
    if not fits:
        known = tuple(s if isinstance(s, int) else None for s in shape)
        raise ValueError(
            f"`{name}` must have the shape (batch,) or that of the examples, "
            f"{known}. Received: {name}.shape={tuple(values.shape)}"
        )
    for _ in range(len(shape) - rank):
        values = ops.expand_dims(values, -1)
    return ops.reshape(ops.broadcast_to(values, shape), (-1,))


def scale(weight, cross_replica):
    """Scales weights `(n,)` so that those that are not 0 have a mean of 1."""
    sums = ops.stack(
        [ops.sum(weight), ops.sum(ops.cast(weight != 0, "float32"))]
    )
    if cross_replica:
        sums = sum_over_replicas(sums)
    return weight * ops.divide_no_nan(sums[1], sums[0])


def _blank_ignored(labels, predictions, weight):
    """Replaces the values of rows of weight 0 by valid ones."""
    counts = weight != 0
    column = ops.expand_dims(counts, -1)
    # A uniform row is a valid prediction and a valid label distribution.
    num_classes = predictions.shape[-1]
    uniform = 1.0 / max(num_classes, 2)
    predictions = ops.where(column, predictions, uniform)
    if len(labels.shape) == 1:
        return ops.where(counts, labels, 0.0), predictions
    return ops.where(column, labels, uniform), predictions


def _check_weight(weight):
    known = _to_numpy_if_known(weight)
    if known is not None and not (known >= 0).all():
        position = int((~(known >= 0)).argmax())
        raise ValueError(
            "`sample_weight` must not be negative or NaN. "
            f"Received: {known[position]:g} for example {position}"
        )


def _make_finite(logits):
    # `where` keeps NaN, which shows that a model has diverged; `clip` may turn
    # it into a number under XLA.
    logits = ops.where(logits > LARGEST_LOGIT, LARGEST_LOGIT, logits)
    return ops.where(logits < -LARGEST_LOGIT, -LARGEST_LOGIT, logits)


def _are_ids(values, count):
    valid = (values >= 0) & (values < count)
    return valid & (values == ops.floor(values))


def _check_groups(groups, num_groups):
    problem = f"`y_true` must hold group ids from 0 to {num_groups - 1}."
    valid = _are_ids(groups, num_groups)
    return _require(valid, problem, "group", groups, groups)


def _check_labels(labels, num_classes, shape):
    if len(labels.shape) == 1:
        seen = labels
        valid = _are_ids(labels, num_classes)
        problem = f"`y_true` must hold class ids from 0 to {num_classes - 1}."
    else:
        seen = ops.sum(labels, axis=-1)
        valid = ops.all(labels >= -checks.ROUNDING, axis=-1)
        valid = valid & (ops.abs(seen - 1.0) <= checks.SUM_TOLERANCE)
        problem = (
            "`y_true` must hold probabilities that sum to 1 in each row. If "
            "rows hold any number of labels, pass `multi_label=True`."
        )
    name = "y_true" if len(shape) == 1 else "flattened y_true"
    return _require(valid, problem, name, labels, seen)


def _check_probabilities(predictions):
    # Written so that NaN passes: a diverged model has a NaN loss.
    outside = (predictions < -checks.ROUNDING) | (
        predictions > 1.0 + checks.ROUNDING
    )
    invalid = ops.any(outside, axis=-1)
    sums = ops.sum(predictions, axis=-1)
    if predictions.shape[-1] > 1:
        invalid = invalid | (ops.abs(sums - 1.0) > checks.SUM_TOLERANCE)
    problem = (
        "`y_pred` must hold probabilities that sum to 1. If they are logits, "
        "pass `from_logits=True`."
    )
    return _require(~invalid, problem, "y_pred", predictions, sums)


def _require(valid, problem, name, rows, seen):
    """Raises an error for invalid rows, now or when the graph runs.

    Args:
        valid: `(n,)`.
        problem: What is wrong.
        name: Name of `rows` in the error.
        rows: The checked values; an error shows the first invalid row.
        seen: `(n,)`; the error of a graph shows the smallest and largest value.

    Returns:
        `valid`, or None if all rows are known to be valid.
    """
    known = _to_numpy_if_known(valid)
    if known is None:
        # XLA would drop the assertion and log a line about it.
        if _is_in_graph(valid) and not is_compiled_by_xla():
            _assert_in_graph(valid, problem, seen)
        return valid
    if not known.all():
        row = int((~known).argmax())
        value = ops.convert_to_numpy(rows[row]).tolist()
        raise ValueError(f"{problem} Received: {name}[{row}]={value}")
    return None


def _both(valid, other):
    if valid is None or other is None:
        return other if valid is None else valid
    return valid & other


def _assert_in_graph(valid, problem, seen):
    """Adds an assertion to a TensorFlow graph that XLA does not compile."""
    import tensorflow as tf

    lowest, highest = tf.reduce_min(seen), tf.reduce_max(seen)
    message = [f"{problem} Received: from", lowest, "to", highest]
    tf.debugging.Assert(tf.reduce_all(valid), message)


def _to_numpy_if_known(tensor):
    """The tensor's values, or None while a graph is being traced.

    It is always None on PyTorch, where Keras traces with tensors of ones, and
    where reading every batch of a training run would stall a GPU.
    """
    if keras.backend.backend() == "torch" or _is_in_graph(tensor):
        return None
    try:
        return ops.convert_to_numpy(tensor)
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None


def _is_in_graph(tensor):
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.is_symbolic_tensor(tensor)


def _warn_about_producer(y_pred, from_logits):
    """Warns if the operation that made `y_pred` contradicts `from_logits`."""
    producer = y_pred.op if _is_in_graph(y_pred) else None
    while producer is not None and producer.type in _TRANSPARENT:
        producer = producer.inputs[0].op
    kind = getattr(producer, "type", None)
    # Keras' activations attach their input to their output.
    is_activation = hasattr(y_pred, "_keras_logits")
    if from_logits and (is_activation or kind in ("Softmax", "Sigmoid")):
        checks.warn(_PROBABILITIES)
    if not from_logits and kind == "BiasAdd":
        checks.warn(_LOGITS)


def _warn_about_probabilities(predictions):
    """Warns if values given as logits are probabilities."""
    if predictions.shape[-1] > 1:
        rows = _to_numpy_if_known(predictions)
        if rows is not None and checks.are_probabilities(rows):
            checks.warn(_PROBABILITIES)
