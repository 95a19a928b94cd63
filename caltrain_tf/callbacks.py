"""Callbacks for `model.fit` that select the epoch by refinement.

The validation loss of a network is the sum of two parts: how badly the network
is calibrated, and how badly it tells the classes apart (its refinement). The
calibration can be repaired after training, by a temperature for instance; the
refinement cannot. Training reaches the two minima at different epochs, and
early stopping on the validation loss is a compromise between them. The loss
after temperature scaling measures only what cannot be repaired: "refine, then
calibrate".
"""

import inspect
import warnings

import keras
import numpy as np

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import negative_log_likelihood
from caltrain_tf.posthoc import TemperatureScaling
from caltrain_tf.posthoc.base import is_dataset


class TemperatureScaledLoss(keras.callbacks.Callback):
    """Adds the validation loss after temperature scaling to an epoch's logs.

    After each epoch, the callback predicts the validation data, fits the
    temperature that minimises the negative log-likelihood, and adds to the logs

    - `val_ts_nll`: the mean negative log-likelihood at that temperature, and
    - `val_temperature`: the temperature.

    Callbacks that come after this one in the list see both values; the history,
    the progress bar and TensorBoard show them too.

        model.fit(
            train,
            epochs=100,
            callbacks=[
                ct.callbacks.TemperatureScaledLoss((x_val, y_val)),
                keras.callbacks.EarlyStopping(
                    "val_ts_nll",
                    mode="min",
                    patience=5,
                    restore_best_weights=True,
                ),
            ],
        )

    After training, fit a calibrator to the network with the restored weights.
    Fitting it on the same validation data, which also selected the epoch, is
    common and slightly optimistic: measure its results on other data.

    The callback makes its own pass over the validation data, in addition to
    that of `fit(..., validation_data=...)`, which it does not need. Finding the
    temperature takes milliseconds.

    Args:
        validation_data: Arrays `(x, y)` or `(x, y, sample_weight)`; or a
            `tf.data.Dataset`, a `keras.utils.PyDataset`, a PyTorch
            `DataLoader` or any other iterable of such batches that can be read
            once per epoch, in any order.
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
        ...     keras.callbacks.EarlyStopping("val_ts_nll", mode="min"),
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
        _check_data(validation_data)
        self.validation_data = validation_data
        if from_logits is not None:
            checks.flag("from_logits", from_logits)
        if multi_label is not None:
            checks.flag("multi_label", multi_label)
        if ignore_class is not None:
            checks.count("ignore_class", ignore_class, -(2**63))
        self.from_logits = from_logits
        self.multi_label = multi_label
        self.ignore_class = ignore_class
        self.batch_size = checks.count("batch_size", batch_size)

    def on_train_begin(self, logs=None):
        """Reads the options of the loss."""
        del logs
        self._options = _options_of(
            self.model.loss,
            from_logits=self.from_logits,
            multi_label=self.multi_label,
            ignore_class=self.ignore_class,
        )
        # Of `Groupwise`: labels have a second column, the groups.
        loss = _single_loss(self.model.loss)
        self._has_groups = getattr(loss, "num_groups", None) is not None

    def on_epoch_end(self, epoch, logs=None):
        """Adds the two values to the logs."""
        del epoch
        outputs, labels, weights = self._predict()
        labels = checks.as_array("validation_data", labels)
        if self._has_groups and labels.ndim == max(outputs.ndim, 2):
            labels = labels[..., 0]
        options = dict(self._options)
        # A Keras binary loss implies `multi_label`, which one output is not.
        if outputs.ndim == 1 or outputs.shape[-1] == 1:
            options["multi_label"] = False
        values = temperature_scaled_nll(outputs, labels, weights, **options)
        if logs is not None:
            logs["val_ts_nll"] = values["ts_nll"]
            logs["val_temperature"] = values["temperature"]

    def _predict(self):
        """Outputs, labels and weights of all validation data."""
        data, masked = self.validation_data, _may_mask(self.model)
        if isinstance(data, tuple) and not masked:
            x, y, weight = (*data, None)[:3]
            outputs = self.model.predict(x, self.batch_size, verbose=0)
            return _single(outputs), y, weight
        parts = []
        for x, y, weight in _batches(data, self.batch_size):
            labels = checks.as_array("validation_data", y)
            x = keras.tree.map_structure(_as_input, x)
            if masked:
                outputs = _single(self.model(x, training=False))
                weight = _with_mask(outputs, weight)
            else:
                outputs = _single(self.model.predict_on_batch(x))
            # Under `tf.distribute`, all replicas predict the same batch.
            outputs = checks.as_array("validation_data", outputs)[: len(labels)]
            if weight is None:
                weight = np.ones(len(labels), np.float32)
            parts.append(_flatten(outputs, labels, weight))
        if not parts:
            raise ValueError(
                "`validation_data` must hold at least one batch. "
                "Received: an iterable without any"
            )
        return map(np.concatenate, zip(*parts, strict=True))


def temperature_scaled_nll(
    outputs,
    labels,
    sample_weight=None,
    *,
    from_logits=True,
    multi_label=False,
    ignore_class=None,
):
    """Negative log-likelihood after temperature scaling.

    Args:
        outputs: Logits, or probabilities, of one of the shapes that
            `posthoc.TemperatureScaling` takes.
        labels: Class ids, or one-hot rows.
        sample_weight: Weights of the examples.
        from_logits: Whether `outputs` holds logits.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Returns:
        A dictionary of `ts_nll`, in nats, and `temperature`.

    Example:
        >>> logits = [[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]]
        >>> temperature_scaled_nll(logits, [0, 1, 0, 1])
        {'ts_nll': 0.5623, 'temperature': 3.641}
    """
    options = {"multi_label": multi_label, "ignore_class": ignore_class}
    examples = inputs.read(
        outputs,
        labels,
        from_logits,
        sample_weight=sample_weight,
        name="outputs",
        **options,
    )
    # Checked here, so that errors name the arguments of this function.
    examples.map(lambda block, labels: ())
    scaler = TemperatureScaling(from_probs=not from_logits, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*look like probabilities")
        # Expected early in training, and late in training on easy data.
        warnings.filterwarnings("ignore", ".*determine no temperature")
        scaled = scaler.fit(outputs, labels, sample_weight).transform(outputs)
    nll = negative_log_likelihood(
        scaled,
        labels,
        from_logits=True,
        sample_weight=sample_weight,
        **options,
    )
    return {"ts_nll": nll, "temperature": float(scaler.temperature_)}


def _check_data(data):
    if isinstance(data, tuple):
        if len(data) not in (2, 3) or data[1] is None:
            raise ValueError(
                "`validation_data` must be (x, y) or (x, y, sample_weight) if "
                f"it is a tuple. Received: {len(data)} elements"
                f"{', the labels None' if len(data) in (2, 3) else ''}"
            )
        return
    if isinstance(data, keras.utils.PyDataset):
        return
    is_iterable = hasattr(data, "__iter__") and not hasattr(data, "__array__")
    if not is_iterable or isinstance(data, (str, bytes, dict)):
        raise ValueError(
            "`validation_data` must be a tuple of arrays, a dataset, or "
            "another iterable of batches. "
            f"Received: validation_data of type {type(data).__name__}"
        )
    if hasattr(data, "__next__"):
        raise ValueError(
            "`validation_data` must be an iterable that can be read anew after "
            "each epoch, such as a dataset or a list of batches. "
            f"Received: {type(data).__name__}"
        )
    if is_dataset(data) and int(data.cardinality()) == -1:
        raise ValueError(
            "`validation_data` must have an end. Received: a dataset that "
            "repeats without one"
        )


def _batches(data, batch_size):
    """Yields `(x, y, sample_weight or None)`."""
    if isinstance(data, tuple):
        for start in range(0, len(data[1]), batch_size):
            rows = slice(start, start + batch_size)
            x = keras.tree.map_structure(lambda a, rows=rows: a[rows], data[0])
            rest = [
                None
                if part is None
                else checks.as_array("validation_data", part[rows])
                for part in data[1:]
            ]
            yield (x, *rest, None)[:3]
        return
    if isinstance(data, keras.utils.PyDataset):
        # Iterating might not end: indexing beyond the end need not raise.
        batches = (data[index] for index in range(len(data)))
    else:
        batches = iter(data)
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            raise ValueError(
                "`validation_data` must hold batches (x, y) or (x, y, "
                "sample_weight); whole arrays are passed as a tuple. "
                f"Received: a batch of type {type(batch).__name__}"
            )
        x, y, weight = (*batch, None)[:3]
        if weight is not None:
            weight = checks.as_array("validation_data", weight)
        yield x, y, weight


def _as_input(value):
    """An input for the backend, from an array or a tensor of any library."""
    if value is None or keras.ops.is_tensor(value):
        return value
    return checks.as_array("validation_data", value)


def _single(outputs):
    if isinstance(outputs, (tuple, list, dict)):
        raise ValueError(
            "`TemperatureScaledLoss` needs a model with one output. "
            f"Received: {len(outputs)} outputs"
        )
    return outputs


def _single_loss(loss):
    """The loss of a model with one output, which may be in a list or a dict."""
    if isinstance(loss, dict):
        loss = list(loss.values())
    is_list = isinstance(loss, (list, tuple)) and len(loss) == 1
    return loss[0] if is_list else loss


def _options_of(loss, **given):
    """The given options, completed by those of the compiled loss."""
    declared, loss = {}, _single_loss(loss)
    if isinstance(loss, str) and loss not in ("ce", "crossentropy"):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        declared = loss.get_config()
    elif callable(loss):
        parameters = inspect.signature(loss).parameters
        declared = {name: each.default for name, each in parameters.items()}
    kind = getattr(loss, "__name__", type(loss).__name__)
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
        options["multi_label"] = kind.lower().startswith("binary")
    return options


def _may_mask(model):
    """Whether a layer of the model may mask outputs."""
    for layer in model._flatten_layers():
        if getattr(layer, "mask_zero", False):
            return True
        makes_masks = isinstance(layer, keras.layers.Masking) or (
            type(layer).compute_mask is not keras.layers.Layer.compute_mask
            and not type(layer).__module__.startswith("keras.")
        )
        if makes_masks:
            return True
    return False


def _with_mask(outputs, weight):
    """Weights that are 0 where a Keras layer masked the outputs."""
    mask = inputs.get_keras_mask(outputs)
    if mask is None:
        return weight
    mask = checks.as_array("mask", mask).astype(np.float32)
    return mask if weight is None else mask * _expand(weight, mask.shape)


def _flatten(outputs, labels, weight):
    """Flattens tokens or pixels to rows, since batches may differ in length."""
    shape = outputs.shape[:-1]
    if len(shape) < 2 or labels.shape[: len(shape)] != shape:
        return outputs, labels, weight
    weight = _expand(weight, shape)
    return tuple(
        array.reshape(-1, *array.shape[len(shape) :])
        for array in (outputs, labels, weight)
    )


def _expand(weight, shape):
    """Broadcasts weights of the first axes of `shape` to all its axes."""
    if weight.ndim < len(shape):
        weight = weight.reshape(
            weight.shape + (1,) * (len(shape) - weight.ndim)
        )
    elif weight.shape == (*shape, 1):
        weight = weight[..., 0]
    return np.broadcast_to(weight, (*shape, *weight.shape[len(shape) :]))
