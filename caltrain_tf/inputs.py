"""The front door: the only file that knows the shapes of predictions.

| predictions | meaning | labels | weights |
|---|---|---|---|
| `(..., K)`, K >= 2 | K classes | ids `(...)` or rows `(..., K)` | `(...)` |
| `(..., 1)`; arrays also `(N,)` | class 1 of two | 0/1 `(...)` | `(...)` |
| `(..., L)`, `multi_label=True` | L binary problems | 0/1 `(..., L)` | both |

`standardize` reads the tensors of losses and streaming metrics, `read` the
arrays of exact metrics and calibrators. Behind either there are n examples of
K >= 2 classes.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from caltrain_tf import checks, replicas

# Tensors.
#
# Invalid values are never silent. In eager mode, invalid labels, probabilities
# and weights raise an error that names the row. A graph on CPU or GPU raises
# `InvalidArgumentError`, as Keras' own losses do. Under XLA and JAX's `jit`,
# where nothing can raise, `nan_where_invalid` turns the loss into NaN.

# Infinite logits, such as -1e30 in float16, would give inf - inf.
LARGEST_LOGIT = 1e30
# The smallest probability whose logarithm is taken: Keras' epsilon or, for
# float16, whose gradients end at 65504, its smallest normal number.
SMALLEST_PROBABILITY = 1e-7
SMALLEST_FLOAT16_PROBABILITY = 2.0**-14
# How much of the uniform distribution is mixed in before taking an entropy.
ENTROPY_SMOOTHING = 1e-5
# Smaller probabilities, such as the zeros of a random forest, are raised to
# this before a calibrator takes their logarithm. It is small enough for the
# tails of a softmax in float32, which tell temperatures apart, and large enough
# that one zero does not outweigh all other examples.
SMALLEST_CALIBRATED = 1e-12
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

    # All methods have finite gradients everywhere, also at logits of -1e30 and
    # at probabilities of exactly 0 and 1.

    @property
    def num_classes(self):
        """K."""
        return self.predictions.shape[-1]

    def probabilities(self):
        """Class probabilities `(n, K)`."""
        if self.from_logits:
            return ops.softmax(self.predictions, axis=-1)
        return self.predictions

    def log_probabilities(self, smallest=None):
        """Log-probabilities `(n, K)`, of probabilities not below `smallest`."""
        if self.from_logits:
            return ops.log_softmax(self.predictions, axis=-1)
        smallest = self.smallest if smallest is None else smallest
        return ops.log(ops.maximum(self.predictions, smallest))

    def confidence(self):
        """The largest class probability `(n,)`."""
        largest = ops.max(self.predictions, axis=-1, keepdims=True)
        if not self.from_logits:
            return largest[:, 0]
        return 1.0 / ops.sum(ops.exp(self.predictions - largest), axis=-1)

    def correctness(self):
        """1.0 where the predicted class is the label, else 0.0, `(n,)`."""
        predicted = first_argmax(ops.stop_gradient(self.predictions))
        return ops.cast(predicted == self.class_ids(), "float32")

    def entropy(self):
        """Entropy in nats of `(1 - e) p + e / K` with e = 1e-5, `(n,)`."""
        smoothed = (1.0 - ENTROPY_SMOOTHING) * self.probabilities()
        smoothed = smoothed + ENTROPY_SMOOTHING / self.num_classes
        return -ops.sum(smoothed * ops.log(smoothed), axis=-1)

    def class_ids(self):
        """Class ids `(n,)` as float32; the most probable class of a row."""
        if len(self.labels.shape) == 1:
            return self.labels
        return first_argmax(self.labels)

    def label_distribution(self):
        """Label distributions `(n, K)`."""
        if len(self.labels.shape) == 2:
            return self.labels
        ids = ops.expand_dims(self.labels, -1)
        return ops.cast(ids == class_range(self.num_classes), "float32")

    def restore(self, values):
        """Values `(n,)` in the shape `(...)` that the examples had."""
        if 0 in [size for size in self.shape if isinstance(size, int)]:
            values = values[:0]
        return ops.reshape(values, self.shape)

    def sum_over_replicas(self, tensor):
        """Adds up `tensor` over the replicas if `cross_replica`."""
        if self.cross_replica:
            return replicas.sum_over_replicas(tensor)
        return tensor

    def gather_over_replicas(self, *tensors):
        """Joins tensors `(n,)` of all replicas if `cross_replica`."""
        if not self.cross_replica:
            return tensors
        together = replicas.gather_over_replicas(ops.stack(tensors, axis=1))
        return ops.unstack(together, len(tensors), axis=1)


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

    With `num_groups`, `y_true` is `(..., 2)`: a class id and a group id. A
    `Batch` in place of `y_true` is returned as it is, so that all parts of a
    loss share one.
    """
    if isinstance(y_true, Batch):
        return y_true
    from_logits = checks.flag("from_logits", from_logits)
    multi_label = checks.flag("multi_label", multi_label)
    cross_replica = checks.flag("cross_replica", cross_replica)
    ignore_class = checks.ignore_class(ignore_class)
    mask = get_keras_mask(y_pred)
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
    if predictions.shape[0] == 0:
        # One example that does not count, because Keras has no maximum of none.
        labels = ops.pad(labels, [[0, 1]] + [[0, 0]] * (len(labels.shape) - 1))
        predictions = ops.pad(predictions, [[0, 1], [0, 0]])
        weight = mask = ops.zeros(1)
        groups = None if groups is None else ops.zeros(1)
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


def as_logits(predictions, from_probs, multi_label):
    """Logits `(..., K)`, K >= 2, of predictions as calibrators take them."""
    if multi_label:
        predictions = ops.expand_dims(predictions, -1)
    if predictions.shape[-1] == 1:
        other = 1 - predictions if from_probs else ops.zeros_like(predictions)
        predictions = ops.concatenate([other, predictions], axis=-1)
    if from_probs:
        return ops.log(ops.maximum(predictions, SMALLEST_CALIBRATED))
    return predictions


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
    # JAX arrays cannot carry attributes, so Keras keeps their masks in a table
    # that has no public name.
    try:
        from keras.src.backend import get_keras_mask
    except ImportError:
        return getattr(tensor, "_keras_mask", None)
    return get_keras_mask(tensor)


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
        sums = replicas.sum_over_replicas(sums)
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
    if known is None:
        return
    invalid = ~((known >= 0) & (known < np.inf))
    if invalid.any():
        position = int(invalid.argmax())
        raise ValueError(
            "`sample_weight` must be finite and not negative. "
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
        if _is_in_graph(valid) and not replicas.is_compiled_by_xla():
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


# Arrays.
#
# Every error names the argument and the first example that is wrong. Values are
# checked block by block, when a metric reads them, so that no temporary is as
# large as the input.

# Large enough that the cost of calls and thread switches does not matter, small
# enough for a cache.
BLOCK_BYTES = 4 * 1024 * 1024
# Its exponential is 0, and products with it are finite.
LOWEST_LOGIT = -1e4


class Examples(NamedTuple):
    """The result of `read`.

    Attributes:
        predictions: Probabilities, or logits, `(n, K)`; `(n, 1)` for binary
            problems. Not checked yet.
        labels: Class ids `(n,)`.
        counts: Booleans `(n,)`, False where an example does not count; None if
            all count.
        weight: Weights of the examples that count, float64; None if all are 1.
        from_logits: Whether `predictions` are logits.
        shape: The shape `(...)` that the examples had.
        name: Name used for the predictions in error messages.
        remedy: Advice to a user whose probabilities are logits.
    """

    predictions: np.ndarray
    labels: np.ndarray
    counts: Any
    weight: Any
    from_logits: bool
    shape: tuple
    name: str
    remedy: str

    def map(self, function):
        """Applies `function(block, labels)` to all examples that count.

        Args:
            function: Gets checked predictions `(m, K)`, K >= 2, float32 or
                float64, and class ids `(m,)`. Returns a tuple of arrays `(m,)`.
                It may be called from several threads at once, and must not
                write into the block.

        Returns:
            The arrays of all blocks, joined.
        """

        def of_block(start, stop):
            block, labels = self._block(start, stop)
            return function(block, labels) if len(block) else None

        num_rows, num_columns = self.predictions.shape
        row_bytes = self.predictions.itemsize * num_columns
        parts = map_blocks(of_block, num_rows, row_bytes)
        parts = [part for part in parts if part is not None]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def whole(self):
        """Checked predictions `(n, K >= 2)` and labels of those that count."""
        if self.counts is None and self.predictions.shape[1] > 1:
            self.map(lambda block, labels: ())
            return as_float(self.predictions), self.labels
        return self._block(0, len(self.predictions))

    def _block(self, start, stop):
        block, labels = self.predictions[start:stop], self.labels[start:stop]
        rows = np.arange(start, stop)
        if self.counts is not None:
            counts = self.counts[start:stop]
            block, labels, rows = block[counts], labels[counts], rows[counts]
        block = as_float(block)

        def index(row):
            return ", ".join(map(str, np.unravel_index(rows[row], self.shape)))

        check_block(block, index, self.from_logits, self.name, self.remedy)
        if block.shape[1] == 1:
            block = two_classes(block[:, 0], self.from_logits)
        return block, labels


def read(
    probs,
    labels,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    name="probs",
    needs_labels=True,
    may_be_empty=False,
    of_calibrator=False,
):
    """Returns `Examples` from arguments with the shapes of the table above.

    Args:
        probs: Probabilities, or logits: an array, a tensor, or anything else
            with `__array__`. Not copied.
        labels: Class ids, or one-hot rows.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether each column is a binary problem of its own.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights, of the examples' shape or of its first axes.
        name: Name used for `probs` in error messages.
        needs_labels: Whether `labels` must not be None.
        may_be_empty: Whether none of the examples need count.
        of_calibrator: Whether messages speak of the option of calibrators,
            `from_probs`, instead of `from_logits`.
    """
    from_logits = checks.flag("from_logits", from_logits)
    multi_label = checks.flag("multi_label", multi_label)
    if ignore_class is not None:
        ignore_class = checks.count("ignore_class", ignore_class, -(2**63))
    # bfloat16 is converted block by block; all at once would double the memory.
    if getattr(getattr(probs, "dtype", None), "name", None) != "bfloat16":
        probs = checks.as_array(name, probs)
    probs = np.asarray(probs)
    if multi_label or probs.ndim == 1:
        probs = probs[..., None]
    if probs.ndim < 2 or probs.size == 0:
        raise ValueError(
            f"`{name}` must have the shape (examples, classes), with at least "
            f"one of both. Received: {name}.shape={probs.shape}"
        )
    shape, num_classes = probs.shape[:-1], probs.shape[-1]
    probs = probs.reshape(-1, num_classes)
    if from_logits and num_classes > 1:
        # Logits hardly ever pass for probabilities in every row, so that some
        # rows are enough.
        if checks.are_probabilities(as_float(probs[:1000])):
            checks.warn(
                f"`{name}` look like probabilities, as after a softmax. Pass "
                "logits, or construct the calibrator with `from_probs=True`."
                if of_calibrator
                else f"`from_logits=True`, but `{name}` looks like "
                "probabilities, as after a softmax. Pass `from_logits=False`, "
                "or logits."
            )
    if labels is None and ignore_class is None and not needs_labels:
        ids, counts = np.broadcast_to(np.int64(0), (len(probs),)), None
    else:
        ids, counts = read_labels(labels, shape, num_classes, ignore_class)
    weight = None
    if sample_weight is not None:
        weight = read_weight(sample_weight, shape)
        if not weight.all():
            counts = weight > 0 if counts is None else counts & (weight > 0)
    if counts is not None:
        if not counts.any() and not may_be_empty:
            raise ValueError(
                "`sample_weight` and `ignore_class` must leave an example that "
                f"counts. Received: {len(counts)} examples, none of which does"
            )
        weight = weight if weight is None else weight[counts]
    if weight is not None and np.all(weight == 1):
        weight = None
    remedy = "pass `from_logits=True`"
    if of_calibrator:
        remedy = "construct the calibrator without `from_probs=True`"
    return Examples(
        probs, ids, counts, weight, from_logits, shape, name, remedy
    )


def top_labels(*args, **kwargs):
    """The top-label prediction of each example.

    Args:
        *args: As in `read`.
        **kwargs: As in `read`.

    Returns:
        Confidences `(n,)`, the largest probability of each example, at most 1;
        booleans `(n,)`, whether the predicted class is the label (among equal
        probabilities, the first class is predicted); and weights `(n,)`, or
        None.

    Example:
        >>> confidence, correct, weight = top_labels([0.75, 0.5], [1, 0])
        >>> confidence.tolist(), correct.tolist(), weight
        ([0.75, 0.5], [True, True], None)
    """
    examples = read(*args, **kwargs)

    def of_block(block, labels):
        predicted = block.argmax(axis=1)
        if examples.from_logits:
            confidence = 1 / np.exp(shift_logits(block)).sum(axis=1)
        else:
            confidence = at_class(block, predicted)
        return np.minimum(confidence, 1), predicted == labels

    return *examples.map(of_block), examples.weight


def check_predictions(predictions, labels, from_logits=False, name="probs"):
    """Checks predictions `(n, K)` and labels; returns arrays of both.

    Args:
        predictions: Probabilities, or logits.
        labels: Class ids `(n,)`, or one-hot rows `(n, K)`.
        from_logits: Whether `predictions` holds logits.
        name: Name used for the predictions in error messages.

    Returns:
        Predictions `(n, K)`, float32 or float64, and class ids `(n,)`, int64.

    Example:
        >>> probs, ids = check_predictions([[0.9, 0.1]], [[0, 1]])
        >>> ids.tolist()
        [1]
        >>> check_predictions([[0.9, 0.1], [0.9, 0.2]], [0, 1])
        Traceback (most recent call last):
        ...
        ValueError: `probs` must hold ... Received: probs[1] summing to 1.1
    """
    predictions = checks.as_array(name, predictions)
    if predictions.ndim != 2 or predictions.shape[1] < 2:
        raise ValueError(
            f"`{name}` must have the shape (examples, classes) with at least "
            f"2 classes. Received: {name}.shape={predictions.shape}"
        )
    examples = read(predictions, labels, from_logits, name=name)
    predictions, labels = examples.whole()
    return predictions, labels.astype(np.int64, copy=False)


def map_blocks(function, num_rows, row_bytes, block_bytes=None):
    """Calls `function(start, stop)` for consecutive ranges of rows.

    Args:
        function: Called from several threads at once if there are several
            blocks.
        num_rows: Number of rows.
        row_bytes: Size of one row, which determines how many rows make a block.
        block_bytes: The size of a block; `BLOCK_BYTES` by default.

    Returns:
        The results of the calls, in the order of the rows. If several calls
        raise an error, that of the first block is raised.

    Example:
        >>> map_blocks(lambda start, stop: stop - start, 5, 4, block_bytes=8)
        [2, 2, 1]
    """
    rows = max(1, (block_bytes or BLOCK_BYTES) // max(1, row_bytes))
    starts = range(0, num_rows, rows)

    def of_block(start):
        return function(start, min(start + rows, num_rows))

    threads = min(available_cores(), len(starts))
    if threads < 2:
        return [of_block(start) for start in starts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(of_block, starts))


def available_cores():
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_block(
    block,
    index,
    from_logits=False,
    name="probs",
    remedy="pass `from_logits=True`",
):
    """Raises an error if a row of the block is invalid.

    Args:
        block: Some rows, `(m, K)`, or `(m, 1)` for binary problems.
        index: The index of the block's first row, or a function from a row of
            the block to its index in error messages.
        from_logits: Whether these are logits.
        name: Name used for the predictions in error messages.
        remedy: Advice to a user whose probabilities are logits.
    """
    if from_logits:
        valid = np.isfinite(block).all(axis=1)
    else:
        # All comparisons with NaN are false.
        valid = block.min(axis=1) >= -checks.ROUNDING
        valid &= block.max(axis=1) <= 1 + checks.ROUNDING
        if block.shape[1] > 1:
            sums = block.sum(axis=1)
            valid &= np.abs(sums - 1) <= checks.SUM_TOLERANCE
    if valid.all():
        return
    row = int(np.argmin(valid))
    expected, received = _problem_of(block[row].astype(np.float64))
    if not from_logits:
        expected += f". If they are logits, {remedy}"
    row = index(row) if callable(index) else index + row
    raise ValueError(
        f"`{name}` must hold {expected}. Received: {name}[{row}] {received}"
    )


def _problem_of(row):
    """What an invalid row should hold, and what it holds."""
    not_finite = ~np.isfinite(row)
    if not_finite.any():
        column = int(np.argmax(not_finite))
        return "finite values", f"with {row[column]} in column {column}"
    low, high = row.min(), row.max()
    if low < -checks.ROUNDING or high > 1 + checks.ROUNDING:
        return "probabilities in [0, 1]", f"from {low:g} to {high:g}"
    return (
        f"probabilities that sum to 1 within {checks.SUM_TOLERANCE:g}",
        f"summing to {row.sum():g}",
    )


def as_float(predictions):
    """Predictions as float32 or float64, not copied if they are either.

    Accelerators return half precision; integers are exact ones and zeros.
    """
    if predictions.dtype in (np.float32, np.float64):
        return predictions
    return predictions.astype(np.float32)


def two_classes(predictions, from_logits):
    """`[1 - p, p]` of probabilities `(m,)` of class 1, `[0, z]` of logits."""
    if from_logits:
        return np.stack([np.zeros_like(predictions), predictions], axis=1)
    predictions = np.clip(predictions, 0, 1)
    return np.stack([1 - predictions, predictions], axis=1)


def at_class(block, classes):
    """The entry of each row that belongs to a class, `(m,)`."""
    return np.take_along_axis(block, classes[:, None], axis=1)[:, 0]


def shift_logits(logits):
    """Logits minus the largest of their row, at least `LOWEST_LOGIT`."""
    with np.errstate(over="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
    return np.maximum(shifted, LOWEST_LOGIT, out=shifted)


def read_labels(labels, shape, num_classes, ignore_class):
    """Class ids `(n,)`, and whether each counts, `(n,)`; None if all do."""
    labels = checks.as_array("labels", labels)
    if labels.shape == (*shape, 1):
        labels = labels[..., 0]
    if labels.shape == (*shape, num_classes):
        if ignore_class is not None:
            raise ValueError(
                "`ignore_class` must be None if `labels` are one-hot rows. "
                f"Received: ignore_class={ignore_class}"
            )
        return _ids_of_one_hot(labels, shape), None
    if labels.shape != shape:
        ids = str(shape).replace(",)", ")").strip("()")
        rows = "" if num_classes == 1 else f" or one-hot rows ({ids}, "
        rows += f"{num_classes})" if rows else ""
        raise ValueError(
            f"`labels` must hold class ids ({ids},){rows}, one for each "
            f"prediction. Received: labels.shape={labels.shape}"
        )
    labels = labels.reshape(-1)
    counts = None if ignore_class is None else labels != ignore_class
    last = max(num_classes, 2) - 1
    with np.errstate(invalid="ignore"):
        valid = (labels >= 0) & (labels <= last)
        if labels.dtype.kind == "f":
            valid &= labels == np.floor(labels)
    if counts is not None:
        valid |= ~counts
    if not valid.all():
        row = int(np.argmin(valid))
        index = ", ".join(map(str, np.unravel_index(row, shape)))
        raise ValueError(
            f"`labels` must hold class ids from 0 to {last}. "
            f"Received: labels[{index}]={labels[row]}"
        )
    if labels.dtype.kind == "i":
        return labels, counts
    if counts is not None:
        labels = np.where(counts, labels, 0)
    return labels.astype(np.int64), counts


def _ids_of_one_hot(labels, shape):
    labels = labels.reshape(-1, labels.shape[-1])
    ids = np.argmax(labels, axis=1)
    valid = np.take_along_axis(labels, ids[:, None], axis=1)[:, 0] == 1
    valid &= np.count_nonzero(labels, axis=1) == 1
    if not valid.all():
        row = int(np.argmin(valid))
        index = ", ".join(map(str, np.unravel_index(row, shape)))
        raise ValueError(
            "`labels` must hold one-hot rows, or class ids. If rows hold any "
            "number of labels, pass `multi_label=True`. "
            f"Received: labels[{index}]={labels[row].tolist()}"
        )
    return ids


def read_weight(sample_weight, shape):
    """Weights `(n,)`, float64."""
    weight = checks.as_array("sample_weight", sample_weight)
    if weight.shape == (*shape, 1):
        weight = weight[..., 0]
    fits = weight.ndim <= len(shape) and all(
        size == wanted or (axis and size == 1)
        for axis, (size, wanted) in enumerate(
            zip(weight.shape, shape, strict=False)
        )
    )
    if not fits:
        raise ValueError(
            "`sample_weight` must have the shape of the examples, "
            f"{shape}, or of their first axes. "
            f"Received: sample_weight.shape={weight.shape}"
        )
    with np.errstate(invalid="ignore"):
        valid = (weight >= 0) & np.isfinite(weight)
    if not np.all(valid):
        index = np.unravel_index(np.argmin(valid), weight.shape)
        raise ValueError(
            "`sample_weight` must hold finite numbers that are not negative. "
            f"Received: sample_weight[{', '.join(map(str, index))}]="
            f"{weight[index]}"
        )
    weight = weight.reshape(weight.shape + (1,) * (len(shape) - weight.ndim))
    return np.broadcast_to(weight, shape).reshape(-1).astype(np.float64)
