"""Callbacks for `model.fit` that select the epoch by refinement.

The validation loss is the sum of two parts: how badly a network is calibrated,
and how badly it tells the classes apart (its refinement). Only the first can be
repaired after training, by a temperature for instance.
"""

import inspect
import warnings

import keras
import numpy as np

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import negative_log_likelihood
from caltrain_tf.posthoc import TemperatureScaling


class TemperatureScaledLoss(keras.callbacks.Callback):
    """Adds the validation loss after temperature scaling to an epoch's logs.

    After each epoch, the callback predicts the validation data, fits the
    temperature that minimises the negative log-likelihood, and adds to the logs

    - `val_ts_nll`: the mean negative log-likelihood at that temperature, and
    - `val_temperature`: the temperature.

    Callbacks that come after this one in the list see both values. It makes its
    own pass over the validation data, and does not need that of
    `fit(..., validation_data=...)`.

    After training, fit a calibrator to the network with the restored weights,
    and measure its results on data that did not select the epoch.

    Args:
        validation_data: Arrays `(x, y)` or `(x, y, sample_weight)`; or a
            `tf.data.Dataset`, a `keras.utils.PyDataset`, a PyTorch
            `DataLoader` or any other iterable of such batches that can be read
            once per epoch.
        from_logits: Whether the model returns logits. By default, this and the
            next two arguments are taken from the compiled loss.
        multi_label: Whether the last axis of the outputs holds independent
            binary problems.
        ignore_class: The label of examples that are ignored. Outputs that Keras
            layers mask are ignored too.
        batch_size: Batch size of the predictions if `validation_data` holds
            arrays.

    Example:
        >>> import caltrain_tf as ct, keras, numpy as np
        >>> keras.utils.set_random_seed(0)
        >>> x = np.random.normal(size=(128, 4)).astype("float32")
        >>> y = (x[:, 0] + np.random.normal(size=128) > 0).astype("int32")
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> model.compile("sgd", ct.losses.Focal(from_logits=True))
        >>> history = model.fit(x[:64], y[:64], epochs=2, verbose=0, callbacks=[
        ...     ct.callbacks.TemperatureScaledLoss((x[64:], y[64:])),
        ...     keras.callbacks.EarlyStopping(
        ...         "val_ts_nll", mode="min", restore_best_weights=True),
        ... ])
        >>> sorted(history.history)
        ['loss', 'val_temperature', 'val_ts_nll']

    Reference:
        Berta et al., "Rethinking Early Stopping: Refine, Then Calibrate", 2025.
    """

    def __init__(
        self,
        validation_data,
        *,
        from_logits=None,
        multi_label=None,
        ignore_class=None,
        batch_size=128,
    ):
        super().__init__()
        data = validation_data
        is_batches = isinstance(data, keras.utils.PyDataset) or (
            hasattr(data, "__iter__")
            and not hasattr(data, "__next__")
            and not isinstance(data, (str, bytes, dict, tuple, np.ndarray))
        )
        is_arrays = isinstance(data, tuple) and len(data) in (2, 3)
        is_endless = hasattr(data, "cardinality") and data.cardinality() == -1
        if is_endless or not (is_batches or is_arrays):
            raise ValueError(
                "`validation_data` must be (x, y), (x, y, sample_weight), or "
                "an iterable of such batches that has an end and can be read "
                "in each epoch. Received: validation_data of type "
                f"{type(data).__name__}"
            )
        self.validation_data = data
        self.options = {
            "from_logits": from_logits,
            "multi_label": multi_label,
            "ignore_class": ignore_class,
        }
        self.batch_size = checks.count("batch_size", batch_size)

    def on_train_begin(self, logs=None):
        """Reads the options of the loss."""
        losses = keras.tree.flatten(self.model.loss)
        loss = losses[0] if len(losses) == 1 else None
        self._options = _options_of(loss, self.options)
        # Of `Groupwise`: labels have a second column, the groups.
        self._has_groups = getattr(loss, "num_groups", None) is not None
        self._masked = _WithMask(self.model)

    def on_epoch_end(self, epoch, logs=None):
        """Adds the two values to the logs."""
        parts = [self._predict(*batch) for batch in self._batches()]
        if not parts:
            raise ValueError(
                "`validation_data` must hold at least one batch. "
                "Received: an iterable without any"
            )
        outputs, labels, weights = map(np.concatenate, zip(*parts, strict=True))
        options = dict(self._options)
        # A Keras binary loss implies `multi_label`, which one output is not.
        if outputs.shape[-1] == 1:
            options["multi_label"] = False
        values = temperature_scaled_nll(outputs, labels, weights, **options)
        if logs is not None:
            logs.update({f"val_{name}": x for name, x in values.items()})

    def _batches(self):
        """Yields `(x, y)` or `(x, y, sample_weight)`."""
        data = self.validation_data
        if isinstance(data, tuple):
            x, *rest = data
            rest = [_as_array(part) for part in rest if part is not None]
            arrays = (keras.tree.map_structure(_as_array, x), *rest)
            for start in range(0, len(rest[0]), self.batch_size):
                rows = slice(start, start + self.batch_size)
                yield keras.tree.map_structure(lambda a, r=rows: a[r], arrays)
            return
        if isinstance(data, keras.utils.PyDataset):
            # Iterating might not end: indexing beyond the end need not raise.
            data = map(data.__getitem__, range(len(data)))
        for batch in data:
            if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
                raise ValueError(
                    "`validation_data` must hold batches (x, y) or (x, y, "
                    "sample_weight); whole arrays are passed as a tuple. "
                    f"Received: a batch of type {type(batch).__name__}"
                )
            yield batch

    def _predict(self, x, y, weight=None):
        """Outputs, labels and weights of a batch; tokens and pixels as rows."""
        x, labels = keras.tree.map_structure(_as_array, x), _as_array(y)
        # Under `tf.distribute`, all replicas predict the same batch.
        outputs, mask = (
            _as_array(each)[: len(labels)]
            for each in self._masked.predict_on_batch(x)
        )
        outputs = _with_rank(outputs, 2)
        if self._has_groups and labels.ndim == outputs.ndim:
            labels = labels[..., 0]
        *shape, _ = outputs.shape
        weights = _with_rank(mask.astype(np.float32), outputs.ndim)
        if weight is not None:
            weights = weights * _with_rank(_as_array(weight), outputs.ndim)
        weights = np.broadcast_to(weights, (*shape, weights.shape[-1]))
        return tuple(
            array.reshape(-1, *array.shape[len(shape) :])
            for array in (outputs, labels, weights)
        )


class _WithMask(keras.Model):
    """A model of one output that returns the mask of its output as well."""

    def __init__(self, model):
        super().__init__(name="with_mask")
        self.model = model

    def call(self, x):
        outputs = self.model(x, training=False)
        if isinstance(outputs, (tuple, list, dict)):
            raise ValueError(
                "`TemperatureScaledLoss` needs a model with one output. "
                f"Received: {len(outputs)} outputs"
            )
        mask = inputs.get_keras_mask(outputs)
        if mask is None:
            axes = tuple(range(1, len(outputs.shape)))
            mask = keras.ops.ones_like(keras.ops.max(outputs, axes))
        return outputs, mask


def _as_array(value):
    return checks.as_array("validation_data", value)


def _with_rank(array, rank):
    return array.reshape(array.shape + (1,) * (rank - array.ndim))


def temperature_scaled_nll(
    outputs,
    labels,
    sample_weight=None,
    *,
    from_logits=True,
    multi_label=False,
    ignore_class=None,
):
    """Negative log-likelihood after temperature scaling, and the temperature.

    The arguments are those of `posthoc.TemperatureScaling` and its `fit`.

    Example:
        >>> logits = [[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]]
        >>> temperature_scaled_nll(logits, [0, 1, 0, 1])
        {'ts_nll': 0.5623, 'temperature': 3.641}
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(outputs, labels, *shared, name="outputs")
    outputs, labels = examples.whole()
    scaler = TemperatureScaling(from_probs=not from_logits)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*look like probabilities")
        # Expected early in training, and late in training on easy data.
        warnings.filterwarnings("ignore", ".*determine no temperature")
        scaler.fit(outputs, labels, examples.weight)
        scaled = scaler.transform(outputs)
    nll = negative_log_likelihood(
        scaled, labels, from_logits=True, sample_weight=examples.weight
    )
    return {"ts_nll": nll, "temperature": float(scaler.temperature_)}


def _options_of(loss, given):
    """The given options, completed by those of the compiled loss."""
    declared = {}
    if isinstance(loss, str) and loss not in ("ce", "crossentropy"):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        declared = loss.get_config()
    elif callable(loss):
        parameters = inspect.signature(loss).parameters
        declared = {name: each.default for name, each in parameters.items()}
    options = {
        name: declared.get(name) if value is None else value
        for name, value in given.items()
    }
    if options["from_logits"] is None:
        raise ValueError(
            "`from_logits` must be True or False, since the compiled loss has "
            f"no such option. Received: from_logits=None, loss={loss!r}"
        )
    if options["multi_label"] is None:
        kind = getattr(loss, "__name__", type(loss).__name__)
        options["multi_label"] = kind.lower().startswith("binary")
    return options
