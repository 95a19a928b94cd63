"""What users hand over as `y_true`, `y_pred` and `sample_weight`, made uniform.

Behind `standardize` everything has two dimensions: predictions `(n, K)` of at
least two classes, class ids `(n,)` or label distributions `(n, K)`, and weights
`(n,)`. It is the only place that knows of other shapes, of masks, of labels
that do not count and of other precisions than float32:

| `y_pred` | meaning | `y_true` | `sample_weight` |
|---|---|---|---|
| `(..., K)`, K >= 2 | K classes | ids `(...)` or rows `(..., K)` | `(...)` |
| `(..., 1)` | the probability or logit of class 1 | 0/1 `(...)` | `(...)` |
| `(..., L)`, `multi_label=True` | L binary problems | 0/1 `(..., L)` | both |

Mistakes are said aloud. Called eagerly, bad labels, probabilities and weights
raise an error that names the row. A graph on CPU or GPU raises
`InvalidArgumentError`, as Keras' own losses do. Where nothing can raise, under
XLA and JAX's `jit`, `nan_where_invalid` turns the loss into NaN.
"""

from typing import Any
from typing import NamedTuple

import keras
from keras import ops

from caltrain_tf.checks import SUM_TOLERANCE
from caltrain_tf.checks import are_probabilities
from caltrain_tf.checks import as_array
from caltrain_tf.checks import warn
from caltrain_tf.ops.replicas import sum_over_replicas

# Infinite logits (-1e30 in float16 is one) would give inf - inf.
LARGEST_LOGIT = 1e30
# The smallest probability whose logarithm is taken: Keras' own epsilon, and for
# float16, whose gradients end at 65504, its smallest normal number.
SMALLEST_PROBABILITY = 1e-7
SMALLEST_FLOAT16_PROBABILITY = 2.0**-14
# Operations that hand on the kind of what they are given.
_TRANSPARENT = ("Identity", "Cast", "Reshape", "Squeeze", "ExpandDims")


class Batch(NamedTuple):
    """n examples of K >= 2 classes, all float32.

    Attributes:
        labels: Class ids `(n,)`, or label distributions `(n, K)`.
        predictions: Probabilities, or finite logits, `(n, K)`.
        weight: `(n,)`; examples that count at all have a mean of 1, so that the
            scale of the user's weights does not matter.
        sample_weight: `(n,)` as given, and 0 where masked or ignored.
        mask: `(n,)`, 1 where neither a Keras mask nor `ignore_class` leaves an
            example out; None without either.
        valid: `(n,)`, False where a label or a probability is invalid; None
            where it is known that none is.
        given: The pair of labels and predictions `(n, K)` or, for binary
            problems, `(n, 1)`, for losses that are not ours.
        shape: The shape `(...)` that n values are to be given back in.
        from_logits: Whether `predictions` are logits.
        cross_replica: Whether sums are meant over all replicas' batches.
        smallest: The smallest number to take a logarithm of or to divide by,
            so that slopes stay finite in the precision that came in.
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


def standardize(
    y_true,
    y_pred,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Checks what a loss or a metric was called with; returns a `Batch`."""
    keras_mask = get_keras_mask(y_pred)
    _warn_about_producer(y_pred, from_logits)
    y_true = _to_tensor("y_true", y_true)
    y_pred = _to_tensor("y_pred", y_pred)
    is_float16 = keras.backend.standardize_dtype(y_pred.dtype) == "float16"
    labels, predictions, shape = _flatten(y_true, y_pred, multi_label)
    num_examples = predictions[:, 0]

    mask = None
    if keras_mask is not None:
        mask = _per_example("mask", keras_mask, shape, num_examples)
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
        weight = _per_example(
            "sample_weight", sample_weight, shape, num_examples
        )
        _check_weight(weight)
        weight = weight if mask is None else weight * mask
    rows = _to_numpy_if_known(predictions)
    if weight is not None:
        labels, predictions = _blank_ignored(labels, predictions, weight)
    predictions, valid = _check_values(
        labels, predictions, rows, from_logits, tuple(y_true.shape)
    )
    given = (labels, predictions)
    if predictions.shape[-1] == 1:
        given = (ops.expand_dims(labels, -1), predictions)
        other = ops.zeros_like(predictions) if from_logits else 1 - predictions
        predictions = ops.concatenate([other, predictions], axis=-1)
    if weight is None:
        weight = scaled = ops.ones_like(num_examples)
    else:
        scaled = _scale(weight, cross_replica)
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
    )


def nan_where_invalid(value, batch):
    """A scalar, or values `(n,)`, and NaN where the batch is invalid.

    A product, not `where`, so that the gradient is NaN too.
    """
    if batch.valid is None:
        return value
    valid = batch.valid if len(value.shape) else ops.all(batch.valid)
    return value * ops.where(valid, 1.0, float("nan"))


def class_ids(labels):
    """Class ids `(n,)` as float32.

    Of a label distribution, the most probable class, as Keras' accuracy has it.
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


def get_keras_mask(tensor):
    """The mask that a Keras layer attached to `tensor`, or None."""
    # Arrays of JAX have no attributes; there Keras keeps masks in a table that
    # has no public name.
    from keras.src import backend

    return backend.get_keras_mask(tensor)


def _to_tensor(name, value):
    if not (ops.is_tensor(value) or keras.utils.is_keras_tensor(value)):
        value = as_array(name, value)
    tensor = ops.convert_to_tensor(value)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if not ("float" in dtype or "int" in dtype or dtype == "bool"):
        raise ValueError(
            f"`{name}` must hold real numbers. Received: {name} of "
            f"dtype={dtype}"
        )
    return tensor


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


def _per_example(name, values, shape, like):
    """Weights or a mask as `(n,)`, repeated over the axes that they lack."""
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
    if len(shape) > 1:
        for _ in range(len(shape) - rank):
            values = ops.expand_dims(values, -1)
        return ops.reshape(ops.broadcast_to(values, shape), (-1,))
    return values * ops.ones_like(like)


def _scale(weight, cross_replica):
    sums = ops.stack(
        [ops.sum(weight), ops.sum(ops.cast(weight != 0, "float32"))]
    )
    if cross_replica:
        sums = sum_over_replicas(sums)
    return weight * ops.divide_no_nan(sums[1], sums[0])


def _blank_ignored(labels, predictions, weight):
    """Rows of weight 0 hold something valid, whatever they held before."""
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


def _check_values(labels, predictions, rows, from_logits, label_shape):
    """Predictions, finite if they are logits, and where rows are valid.

    Raises on what is invalid; where that can be done now, all else is valid.

    Args:
        labels: As in `Batch`, without the rows that do not count.
        predictions: Likewise, `(n, 1)` for binary problems.
        rows: The predictions before rows were blanked, where known.
        from_logits: Whether they are logits.
        label_shape: The shape in which the user gave the labels.
    """
    num_classes = predictions.shape[-1]
    known_labels = _to_numpy_if_known(labels)
    valid, problem, seen = _valid_labels(labels, max(num_classes, 2))
    if known_labels is None:
        _assert_in_graph(valid, problem, seen)
    elif not ops.convert_to_numpy(valid).all():
        row = int((~ops.convert_to_numpy(valid)).argmax())
        raise ValueError(
            f"{problem} Received: y_true[{_index(row, label_shape, labels)}]"
            f"={known_labels[row].tolist()}"
        )
    if from_logits:
        if rows is not None and num_classes > 1 and are_probabilities(rows):
            _warn_about_probabilities()
        # `where` keeps NaN; `clip` may turn it into a number under XLA. A
        # diverged model has to show.
        predictions = ops.where(
            predictions > LARGEST_LOGIT, LARGEST_LOGIT, predictions
        )
        predictions = ops.where(
            predictions < -LARGEST_LOGIT, -LARGEST_LOGIT, predictions
        )
    else:
        are_valid, problem, seen = _valid_probabilities(predictions)
        if known_labels is None:
            _assert_in_graph(are_valid, problem, seen)
        elif rows is not None and not ops.convert_to_numpy(are_valid).all():
            row = int((~ops.convert_to_numpy(are_valid)).argmax())
            raise ValueError(
                f"{problem} Received: y_pred[{row}] from {rows[row].min():g} "
                f"to {rows[row].max():g}, summing to {rows[row].sum():g}"
            )
        valid = valid & are_valid
    is_checked = rows is not None and known_labels is not None
    return predictions, None if is_checked else valid


def _valid_labels(labels, num_classes):
    """Where labels are valid, what is wrong elsewhere, numbers that show it."""
    if len(labels.shape) == 1:
        valid = (labels >= 0) & (labels < num_classes)
        valid = valid & (labels == ops.floor(labels))
        problem = f"`y_true` must hold class ids from 0 to {num_classes - 1}."
        return valid, problem, labels
    sums = ops.sum(labels, axis=-1)
    valid = ops.abs(sums - 1.0) <= SUM_TOLERANCE
    valid = valid & ops.all(labels >= -SUM_TOLERANCE, axis=-1)
    problem = (
        "`y_true` must hold probabilities that sum to 1 in each row. If rows "
        "hold any number of labels, pass `multi_label=True`."
    )
    return valid, problem, sums


def _valid_probabilities(predictions):
    """As `_valid_labels`. NaN is valid: a diverged model has a NaN loss."""
    outside = (predictions < -SUM_TOLERANCE) | (
        predictions > 1.0 + SUM_TOLERANCE
    )
    sums = ops.sum(predictions, axis=-1)
    invalid = ops.any(outside, axis=-1)
    if predictions.shape[-1] > 1:
        invalid = invalid | (ops.abs(sums - 1.0) > SUM_TOLERANCE)
    problem = (
        "`y_pred` must hold probabilities that sum to 1. If they are logits, "
        "pass `from_logits=True`."
    )
    return ~invalid, problem, sums


def _index(row, shape, labels):
    """The position of flattened example `row` in labels of `shape`."""
    if len(labels.shape) == 2 or shape[-1] == 1:
        shape = shape[:-1]
    index = []
    for size in reversed(shape[1:]):
        row, position = divmod(row, size)
        index.insert(0, position)
    return ", ".join(str(i) for i in [row, *index])


def _to_numpy_if_known(tensor):
    """The tensor's values, or None while a graph is being traced.

    Never known on PyTorch: Keras traces there with tensors of ones, and a look
    at every batch of a training run would stall a GPU.
    """
    if keras.backend.backend() == "torch" or _is_in_graph(tensor):
        return None
    try:
        return ops.convert_to_numpy(tensor)
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None


def _assert_in_graph(valid, problem, seen):
    """Raises when a TensorFlow graph runs; XLA and TPUs leave this out."""
    if not _is_in_graph(valid):
        return
    import tensorflow as tf

    tf.debugging.Assert(
        tf.reduce_all(valid),
        [
            f"{problem} Received: from",
            tf.reduce_min(seen),
            "to",
            tf.reduce_max(seen),
        ],
    )


def _warn_about_producer(y_pred, from_logits):
    """Warns where what made `y_pred` shows that `from_logits` is wrong."""
    producer = getattr(y_pred, "op", None) if _is_in_graph(y_pred) else None
    while producer is not None and producer.type in _TRANSPARENT:
        producer = producer.inputs[0].op
    kind = getattr(producer, "type", None)
    # Keras' activations leave their input on their output.
    is_activation = hasattr(y_pred, "_keras_logits")
    if from_logits and (is_activation or kind in ("Softmax", "Sigmoid")):
        _warn_about_probabilities()
    if not from_logits and kind == "BiasAdd":
        warn(
            "`from_logits=False`, but `y_pred` comes from a layer without "
            "activation and looks like logits. Pass `from_logits=True`, or "
            "give the last layer a softmax activation."
        )


def _is_in_graph(tensor):
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.is_symbolic_tensor(tensor)


def _warn_about_probabilities():
    warn(
        "`from_logits=True`, but `y_pred` looks like probabilities, as after a "
        "softmax. Pass `from_logits=False`, or take the activation off the "
        "last layer."
    )
