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

# Infinite logits, such as -1e30 in float16, would give inf - inf.
LARGEST_LOGIT = 1e30
# The smallest probability whose logarithm is taken: Keras' epsilon or, for
# float16, whose gradients end at 65504, its smallest normal number.
SMALLEST_PROBABILITY = 1e-7
SMALLEST_FLOAT16_PROBABILITY = 2.0**-14
# How much of the uniform distribution is mixed in before taking an entropy.
ENTROPY_SMOOTHING = 1e-5
# Calibrators raise smaller probabilities to this. It keeps the tails of a
# softmax in float32, which tell temperatures apart, and one zero does not
# outweigh all other examples.
SMALLEST_CALIBRATED = 1e-12
# Blocks of arrays fit into a cache.
BLOCK_BYTES = 4 * 1024 * 1024
# Its exponential is 0, and products with it are finite.
LOWEST_LOGIT = -1e4
_PROBABILITIES = (
    "`from_logits=True`, but `{}` looks like probabilities, as after a "
    "softmax. Pass `from_logits=False`, or logits."
)
# Calibrators, whose predictions are called so, have another option.
_LOGITS = (
    "`logits` look like probabilities, as after a softmax. Pass logits, or "
    "construct the calibrator with `from_probs=True`."
)
_WEIGHTS = "`sample_weight` must hold finite numbers that are not negative."


class Batch(NamedTuple):
    """A batch of n examples of K >= 2 classes, in float32.

    All methods have finite gradients everywhere, also at logits of -1e30 and at
    probabilities of exactly 0 and 1.
    """

    labels: Any  # Class ids `(n,)`, or label distributions `(n, K)`.
    predictions: Any  # Probabilities, or finite logits; NaN in invalid rows.
    weight: Any  # `(n,)`; the weights that are not 0 have a mean of 1.
    sample_weight: Any  # `(n,)` as given, and 0 where masked or ignored.
    mask: Any  # `(n,)`, 0 where masked or ignored, else 1.
    given: Any  # Labels and predictions, `(n, 1)` if binary, for other losses.
    shape: Any  # The shape `(...)` of the examples, to restore for results.
    from_logits: bool
    cross_replica: bool  # Whether sums are over the batches of all replicas.
    smallest: float  # The smallest number whose logarithm is taken.
    groups: Any = None  # Group ids `(n,)`, if there are groups.

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
        return ops.log(ops.maximum(self.predictions, smallest or self.smallest))

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
        is_ids = len(self.labels.shape) == 1
        return self.labels if is_ids else first_argmax(self.labels)

    def label_distribution(self):
        """Label distributions `(n, K)`."""
        if len(self.labels.shape) == 2:
            return self.labels
        classes = ops.arange(self.num_classes, dtype="float32")
        return ops.cast(self.labels[:, None] == classes, "float32")

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

    Invalid values are never silent. In eager mode they raise an error that
    names the row. A graph on CPU or GPU raises `InvalidArgumentError`, as
    Keras' own losses do. Under XLA and JAX's `jit`, where nothing can raise,
    the predictions of the example, and therefore the loss, become NaN.
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
    smallest = SMALLEST_PROBABILITY
    smallest = SMALLEST_FLOAT16_PROBABILITY if is_float16 else smallest
    y_true, y_pred = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
    groups = None
    if num_groups is not None:
        if len(y_true.shape) != len(y_pred.shape) or y_true.shape[-1] != 2:
            raise ValueError(
                "`y_true` must have the shape (batch, 2): a class id and a "
                f"group id. Received: y_true.shape={tuple(y_true.shape)}, "
                f"y_pred.shape={tuple(y_pred.shape)}"
            )
        groups = ops.reshape(y_true[..., 1], (-1,))
        y_true = y_true[..., 0]
    if len(y_pred.shape) < 2 or not y_pred.shape[-1]:
        raise ValueError(
            "`y_pred` must have the shape (batch, classes), or (batch, 1) for "
            "a binary problem, with a known number of classes. Received: "
            f"y_pred.shape={tuple(y_pred.shape)}"
        )
    predictions, shape = _flatten(ops, y_pred, multi_label)
    num_classes = predictions.shape[-1]
    labels = _flatten_labels(
        ops, "y_true", y_true, shape, num_classes, ignore_class
    )
    known = _to_numpy_if_known(predictions) if from_logits else None
    if known is not None and checks.are_probabilities(known):
        checks.warn(_PROBABILITIES.format("y_pred"))
    if mask is None:
        mask = ops.ones_like(predictions[:, 0])
    else:
        mask = flatten_weight(ops, "mask", ops.cast(mask, "float32"), shape)
    if ignore_class is not None:
        mask = mask * ops.cast(labels != ignore_class, "float32")
    weight = scaled = mask
    if sample_weight is not None:
        weight = ops.cast(_to_tensor("sample_weight", sample_weight), "float32")
        weight = flatten_weight(ops, "sample_weight", weight, shape)
        is_weight = _are_weights(weight)
        _require(is_weight, _WEIGHTS, "sample_weight", weight, shape)
        weight = ops.where(is_weight, weight, float("nan")) * mask
        scaled = scale(weight, cross_replica)
    if predictions.shape[0] == 0:
        # One example that does not count, because Keras has no maximum of none.
        labels, predictions, weight, scaled, mask, groups = (
            x if x is None else ops.pad(x, [(0, 1), (0, 0)][: len(x.shape)])
            for x in (labels, predictions, weight, scaled, mask, groups)
        )
    # Rows of weight 0 may hold anything. A uniform row is a valid prediction
    # and a valid label distribution.
    counts, uniform = weight != 0, 1.0 / max(num_classes, 2)
    column = ops.expand_dims(counts, -1)
    predictions = ops.where(column, predictions, uniform)
    if len(labels.shape) == 1:
        labels = ops.where(counts, labels, 0.0)
        valid = _check_ids("class", labels, max(num_classes, 2), shape)
    else:
        labels = ops.where(column, labels, uniform)
        valid = _check_label_rows(labels, shape)
    if groups is not None:
        groups = ops.where(counts, groups, 0.0)
        valid = valid & _check_ids("group", groups, num_groups, shape)
    if from_logits:
        # `where` keeps NaN, which shows that a model has diverged; `clip` may
        # turn it into a number under XLA.
        high, low = predictions > LARGEST_LOGIT, predictions < -LARGEST_LOGIT
        predictions = ops.where(high, LARGEST_LOGIT, predictions)
        predictions = ops.where(low, -LARGEST_LOGIT, predictions)
    else:
        valid = valid & _check_probabilities(predictions, shape)
    # Products instead of `where`: the gradient is NaN, too. XLA drops a
    # prediction whose label is no class, but not a weight.
    nan = ops.where(valid, 1.0, float("nan"))
    predictions = predictions * ops.expand_dims(nan, -1)
    mask, weight, scaled = nan * mask, nan * weight, nan * scaled
    given = (labels, predictions)
    if num_classes == 1:
        given = (ops.expand_dims(labels, -1), predictions)
        predictions = _two_classes(ops, predictions, from_logits)
    tensors = labels, predictions, scaled, weight, mask, given
    options = from_logits, cross_replica, smallest
    return Batch(*tensors, shape, *options, groups)


def as_logits(predictions, from_probs, multi_label):
    """Logits `(..., K)`, K >= 2, of predictions as calibrators take them."""
    if multi_label:
        predictions = ops.expand_dims(predictions, -1)
    if predictions.shape[-1] == 1:
        predictions = _two_classes(ops, predictions, not from_probs)
    if from_probs:
        return ops.log(ops.maximum(predictions, SMALLEST_CALIBRATED))
    return predictions


def scale(weight, cross_replica):
    """Scales weights `(n,)` so that those that are not 0 have a mean of 1."""
    count = ops.sum(ops.cast(weight != 0, "float32"))
    sums = ops.stack([ops.sum(weight), count])
    if cross_replica:
        sums = replicas.sum_over_replicas(sums)
    return weight * ops.divide_no_nan(sums[1], sums[0])


def first_argmax(x):
    """`argmax` over the last axis, as float32; ties go to the first class."""
    # `ops.argmax` takes 0.0 and -0.0 for different numbers on TensorFlow.
    count = x.shape[-1]
    is_largest = x == ops.max(x, axis=-1, keepdims=True)
    classes = ops.arange(count, dtype="float32")
    return ops.min(ops.where(is_largest, classes, float(count)), axis=-1)


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
    return ops.convert_to_tensor(value)


def _flatten(xp, predictions, multi_label):
    """Predictions as `(n, K)`, and the shape `(...)` of the examples."""
    # Here and below, `xp` is `keras.ops` for tensors and `numpy` for arrays.
    if multi_label:
        predictions = xp.expand_dims(predictions, -1)
    rows = xp.reshape(predictions, (-1, predictions.shape[-1]))
    return rows, xp.shape(predictions)[:-1]


def _flatten_labels(xp, name, labels, shape, num_classes, ignore_class):
    """Labels as class ids `(n,)`, or as rows `(n, K)`."""
    of_ids = _known(shape)
    of_rows = (*of_ids, num_classes)
    received = f"Received: {name}.shape={tuple(labels.shape)}"
    if len(labels.shape) == len(of_rows) and labels.shape[-1] == 1:
        labels = xp.squeeze(labels, -1)
    if _fits(labels.shape, of_rows) and labels.shape[-1] is not None:
        if ignore_class is not None:
            raise ValueError(
                f"`{name}` must hold class ids if `ignore_class` is given. "
                f"{received}, {ignore_class=}"
            )
        return xp.reshape(labels, (-1, num_classes))
    if not _fits(labels.shape, of_ids):
        rows = f" or rows {of_rows}" if num_classes > 1 else ""
        raise ValueError(
            f"`{name}` must hold class ids {of_ids}{rows}. {received}"
        )
    return xp.reshape(labels, (-1,))


def flatten_weight(xp, name, values, shape):
    """Weights or a mask as `(n,)`, broadcast over missing axes."""
    received = f"Received: {name}.shape={tuple(values.shape)}"
    if len(values.shape) > 1 and values.shape[-1] == 1:
        values = xp.squeeze(values, -1)
    rank, known = len(values.shape), _known(shape)
    if not _fits(values.shape, known[:rank]):
        raise ValueError(
            f"`{name}` must have the shape of the examples, {known}, or of "
            f"their first axes. {received}"
        )
    for _ in range(len(shape) - rank):
        values = xp.expand_dims(values, -1)
    return xp.reshape(xp.broadcast_to(values, shape), (-1,))


def _fits(shape, expected):
    """Whether the shapes may be equal; None is a size not known yet."""
    return len(shape) == len(expected) and all(
        None in sizes or sizes[0] == sizes[1]
        for sizes in zip(shape, expected, strict=True)
    )


def _known(shape):
    """A shape with None for sizes that a graph does not know yet."""
    return tuple(size if isinstance(size, int) else None for size in shape)


def _two_classes(xp, predictions, from_logits):
    """`[1 - p, p]` of probabilities `(..., 1)`, `[0, z]` of logits."""
    other = xp.zeros_like(predictions) if from_logits else 1 - predictions
    return xp.concatenate([other, predictions], axis=-1)


def _are_weights(values):
    return (values >= 0) & (values < float("inf"))


def _are_ids(values, count):
    return (values >= 0) & (values < count) & (values % 1 == 0)


def _check_ids(kind, ids, count, shape):
    problem = f"`y_true` must hold {kind} ids from 0 to {count - 1}."
    return _require(_are_ids(ids, count), problem, "y_true", ids, shape)


def _check_label_rows(labels, shape):
    gap = ops.abs(ops.sum(labels, axis=-1) - 1.0)
    valid = ops.all(labels >= -checks.ROUNDING, axis=-1)
    valid = valid & (gap <= checks.SUM_TOLERANCE)
    problem = (
        "`y_true` must hold probabilities that sum to 1 in each row. If rows "
        "hold any number of labels, pass `multi_label=True`."
    )
    return _require(valid, problem, "y_true", labels, shape)


def _check_probabilities(predictions, shape):
    # Written so that NaN passes: a diverged model has a NaN loss.
    low, high = -checks.ROUNDING, 1.0 + checks.ROUNDING
    invalid = ops.any((predictions < low) | (predictions > high), axis=-1)
    if predictions.shape[-1] > 1:
        gap = ops.abs(ops.sum(predictions, axis=-1) - 1.0)
        invalid = invalid | (gap > checks.SUM_TOLERANCE)
    problem = (
        "`y_pred` must hold probabilities that sum to 1. If they are logits, "
        "pass `from_logits=True`."
    )
    return _require(~invalid, problem, "y_pred", predictions, shape)


def _require(valid, problem, name, rows, shape):
    """Returns `valid`, or raises an error, now or when the graph runs."""
    known = _to_numpy_if_known(valid)
    if known is None:
        # XLA would drop the assertion and log a line about it.
        if _is_in_graph(valid) and not replicas.is_compiled_by_xla():
            import tensorflow as tf

            lowest, highest = tf.reduce_min(rows), tf.reduce_max(rows)
            message = [f"{problem} Received: from", lowest, "to", highest]
            tf.debugging.Assert(tf.reduce_all(valid), message)
    else:
        _require_now(known, problem, name, rows, shape)
    return valid


def _require_now(valid, problem, name, rows, shape):
    """Raises an error that names the first invalid row."""
    if not valid.all():
        row = int(np.argmin(valid))
        value = ops.convert_to_numpy(rows[row]).tolist()
        raise ValueError(
            f"{problem} Received: {name}[{_index(row, shape)}]={value}"
        )


def _to_numpy_if_known(tensor):
    """The tensor's values, or None while a graph is being traced."""
    # On PyTorch, Keras traces with tensors of ones, and reading every batch of
    # a training run would stall a GPU.
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
    # Operations that keep logits logits and probabilities probabilities.
    transparent = ("Identity", "Cast", "Reshape", "Squeeze", "ExpandDims")
    while producer is not None and producer.type in transparent:
        producer = producer.inputs[0].op
    kind = getattr(producer, "type", None)
    # Keras' activations attach their input to their output.
    is_activation = hasattr(y_pred, "_keras_logits")
    if from_logits and (is_activation or kind in ("Softmax", "Sigmoid")):
        checks.warn(_PROBABILITIES.format("y_pred"))
    if not from_logits and kind == "BiasAdd":
        checks.warn(
            "`from_logits=False`, but `y_pred` comes from a layer without "
            "activation and looks like logits. Pass `from_logits=True`, or "
            "give the last layer a softmax activation."
        )


class Examples(NamedTuple):
    """Checked examples that count; the result of `read`."""

    predictions: np.ndarray  # Floats `(n, K)`; `(n, 1)` if binary.
    labels: np.ndarray  # Class ids `(n,)`.
    weight: Any  # `(n,)`, float64; None if all are 1.
    from_logits: bool
    shape: tuple  # The shape `(...)` of the examples that were given.
    counts: np.ndarray  # Which of these count, booleans.

    def map(self, function):
        """Joins the arrays `(m,)` of `function(block, labels)` of all blocks.

        Several threads call `function` with predictions `(m, K >= 2)`, float32
        or float64, and class ids `(m,)`.
        """

        def of_block(start, stop):
            part = self._replace(predictions=self.predictions[start:stop])
            return function(part.whole()[0], self.labels[start:stop])

        row_bytes = self.predictions[:1].nbytes
        parts = map_blocks(of_block, len(self.labels), row_bytes)
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def whole(self):
        """Predictions `(n, K >= 2)` and labels `(n,)`."""
        if self.predictions.shape[1] > 1:
            return self.predictions, self.labels
        values = self.predictions
        values = values if self.from_logits else np.clip(values, 0, 1)
        return _two_classes(np, values, self.from_logits), self.labels


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
):
    """Returns `Examples` from arguments with the shapes of the table above.

    `probs` is an array, a tensor, or anything else with `__array__`; messages
    call it `name`. `may_be_empty` allows that no example counts. `Examples` in
    place of `probs` are returned as they are.
    """
    if isinstance(probs, Examples):
        return probs
    from_logits = checks.flag("from_logits", from_logits)
    multi_label = checks.flag("multi_label", multi_label)
    ignore_class = checks.ignore_class(ignore_class)
    given = checks.as_array(name, probs)
    if given.size == 0 or given.ndim == 0:
        raise ValueError(
            f"`{name}` must have the shape (examples, classes), with at least "
            f"one of both. Received: {name}.shape={given.shape}"
        )
    if given.ndim == 1 and not multi_label:
        given = given[:, None]
    probs, shape = _flatten(np, given, multi_label)
    if probs.dtype not in (np.float32, np.float64):
        # Accelerators return half precision; integers are exact ones and zeros.
        probs = probs.astype(np.float32)
    # Logits hardly ever pass for probabilities in every row, so that some rows
    # are enough.
    if from_logits and checks.are_probabilities(probs[:1000]):
        is_probs = name != "logits"
        checks.warn(_PROBABILITIES.format(name) if is_probs else _LOGITS)
    weight, counts = None, np.ones(len(probs), bool)
    if sample_weight is not None:
        weight = checks.as_array("sample_weight", sample_weight)
        weight = flatten_weight(np, "sample_weight", weight, shape)
        valid = _are_weights(weight)
        _require_now(valid, _WEIGHTS, "sample_weight", weight, shape)
        counts = weight > 0
    if labels is None and ignore_class is None and not needs_labels:
        ids = np.zeros(len(probs), np.int64)
    else:
        ids, counts = _read_labels(
            labels, shape, probs.shape[1], ignore_class, counts
        )
    if weight is not None:
        weight = weight[counts].astype(np.float64)
        weight = None if np.all(weight == 1) else weight
    if not counts.any() and not may_be_empty:
        raise ValueError(
            "`sample_weight` and `ignore_class` must leave an example that "
            f"counts. Received: {len(counts)} examples, none of which does"
        )
    if not counts.all():
        probs, ids = probs[counts], ids[counts]
    _check_rows(name, probs, from_logits, shape, counts)
    return Examples(probs, ids, weight, from_logits, shape, counts)


def _check_rows(name, probs, from_logits, shape, counts):
    """Raises an error that names the first invalid row of those that count."""
    expected = "finite values"
    if not from_logits:
        expected = (
            "probabilities in [0, 1] that sum to 1 within "
            f"{checks.SUM_TOLERANCE:g}. If they are logits, pass "
            "`from_logits=True` (a calibrator: `from_probs=False`)"
        )

    def of_block(start, stop):
        rows = probs[start:stop]
        if from_logits:
            valid = np.isfinite(rows).all(axis=1)
        else:
            # All comparisons with NaN are false.
            valid = rows.min(axis=1) >= -checks.ROUNDING
            valid &= rows.max(axis=1) <= 1 + checks.ROUNDING
            if rows.shape[1] > 1:
                valid &= np.abs(rows.sum(axis=1) - 1) <= checks.SUM_TOLERANCE
        if not valid.all():
            first = start + int(np.argmin(valid))
            place = _index(np.flatnonzero(counts)[first], shape)
            row = probs[first].astype(np.float64)
            raise ValueError(
                f"`{name}` must hold {expected}. Received: {name}[{place}] "
                f"from {row.min():g} to {row.max():g}, summing to {row.sum():g}"
            )

    map_blocks(of_block, len(probs), probs[:1].nbytes)


class Outcomes(NamedTuple):
    """Probabilities of one class per example, and whether they came true."""

    confidence: np.ndarray  # `(n,)`, at most 1.
    correct: np.ndarray  # Booleans `(n,)`.
    weight: Any = None  # `(n,)`; None if all are 1.

    def rows(self, index):
        """The outcomes of a part of the examples."""
        return Outcomes(*(x if x is None else x[index] for x in self))


def top_labels(probs, *args, **kwargs):
    """`Outcomes` of the predicted class, the first of the most probable ones.

    The arguments are those of `read`. `Outcomes` in place of `probs` are
    returned as they are, so that metrics of resamples and groups read the
    predictions once.
    """
    if isinstance(probs, Outcomes):
        return probs
    examples = read(probs, *args, **kwargs)

    def of_block(block, labels):
        predicted = block.argmax(axis=1)
        if examples.from_logits:
            confidence = 1 / np.exp(shift_logits(block)).sum(axis=1)
        else:
            confidence = at_class(block, predicted)
        return np.minimum(confidence, 1), predicted == labels

    return Outcomes(*examples.map(of_block), examples.weight)


def map_blocks(function, num_rows, row_bytes):
    """Lists `function(start, stop)` of consecutive ranges of rows, by threads.

    A block has as many rows as `BLOCK_BYTES` hold. If several calls raise an
    error, that of the first block is raised.
    """
    rows = max(1, BLOCK_BYTES // max(1, row_bytes))
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


def at_class(block, classes):
    """The entry of each row that belongs to a class, `(m,)`."""
    return np.take_along_axis(block, classes[:, None], axis=1)[:, 0]


def shift_logits(logits):
    """Logits minus the largest of their row, at least `LOWEST_LOGIT`."""
    with np.errstate(over="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
    return np.maximum(shifted, LOWEST_LOGIT, out=shifted)


def _read_labels(labels, shape, num_classes, ignore_class, counts):
    """Class ids `(n,)`, and which of those that `counts` count, `(n,)`."""
    labels = checks.as_array("labels", labels)
    labels = _flatten_labels(
        np, "labels", labels, shape, num_classes, ignore_class
    )
    if ignore_class is not None:
        counts = counts & (labels != ignore_class)
    if not counts.all():  # The others may hold anything.
        is_row = labels.ndim == 2
        valid = np.eye(1, num_classes) if is_row else 0
        labels = np.where(counts[:, None] if is_row else counts, labels, valid)
    if labels.ndim == 1:
        num_classes = max(num_classes, 2)
        expected = f"class ids from 0 to {num_classes - 1}"
        with np.errstate(invalid="ignore"):
            valid = _are_ids(labels, num_classes)
    else:
        expected = (
            "one-hot rows, or class ids. If rows hold any number of labels, "
            "pass `multi_label=True`"
        )
        valid = np.count_nonzero(labels, axis=1) == 1
        valid &= labels.max(axis=1) == 1
    problem = f"`labels` must hold {expected}."
    _require_now(valid, problem, "labels", labels, shape)
    ids = np.argmax(labels, axis=1) if labels.ndim == 2 else labels
    return ids if ids.dtype.kind == "i" else ids.astype(np.int64), counts


def _index(row, shape):
    return ", ".join(map(str, np.unravel_index(row, shape)))
