"""Base classes of calibrators and prediction sets, and their JSON files."""

import json
import os
import uuid

import keras
import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from caltrain_tf import checks
from caltrain_tf.inputs import map_blocks
from caltrain_tf.posthoc import data

FORMAT = "caltrain_tf.posthoc"
VERSION = 1
# Layers after which probabilities are still probabilities.
PASSING_ON = ("Cast", "Dropout", "Flatten", "Identity", "Reshape")


class PostHoc(BaseEstimator):
    """Base class of objects that are fitted to predictions and labels.

    Predictions may have the shape

    - `(..., K)`: K classes; all leading axes are examples: images, pixels or
      tokens. Labels: class ids `(...)`, or one-hot rows `(..., K)`.
    - `(N,)` or `(..., 1)`: the logit, or probability, of class 1 of two.
      Labels: 0 or 1, `(...)` or `(..., 1)`.
    - `(..., L)` with `multi_label=True`: L independent binary problems, which
      share one fit. Labels: 0 or 1, `(..., L)`.

    A subclass lists the attributes that a fit sets in `fitted_names` and
    defines `_fit`, `_layer` and `_check_fitted_values`. Its constructor names
    all options. Every subclass has the options below.

    Args:
        from_probs: Whether predictions are probabilities instead of logits,
            such as those of a network that ends in a softmax or of a random
            forest. Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.
    """

    fitted_names = ()

    def __init__(self, *, from_probs, multi_label, ignore_class):
        self.from_probs = checks.flag("from_probs", from_probs)
        self.multi_label = checks.flag("multi_label", multi_label)
        if ignore_class is not None:
            ignore_class = checks.count("ignore_class", ignore_class, -(2**63))
        self.ignore_class = ignore_class

    def fit(self, logits, labels=None, sample_weight=None):
        """Fits to predictions and their labels.

        Args:
            logits: Logits of one of the shapes above, or probabilities with
                `from_probs=True`: an array, which may be memory-mapped, a
                tensor, or anything else with `__array__`. Or a
                `tf.data.Dataset`, or any other iterable that can be read
                several times, of `(logits, labels)` or
                `(logits, labels, sample_weight)` batches; large datasets are
                read again for each evaluation and not kept in memory.
            labels: Class ids, or one-hot rows; left out for a dataset.
            sample_weight: Weights >= 0, of the examples' shape or of its first
                axes. Only the ratios of weights matter.

        Returns:
            The object itself.
        """
        rows = data.read(
            logits,
            labels,
            sample_weight,
            from_probs=self.from_probs,
            multi_label=self.multi_label,
            ignore_class=self.ignore_class,
        )
        self._fit(rows)
        self.num_classes_ = rows.num_classes
        return self

    def as_layer(self):
        """Returns a Keras layer that does the same and does not train."""
        self._check_fitted()
        return self._layer(
            from_probs=self.from_probs, multi_label=self.multi_label
        )

    def save(self, path):
        """Writes a JSON file that `ct.posthoc.load` reads.

        Args:
            path: Path of the file. It never holds an incomplete file, because
                the file is written under another name and then renamed.
        """
        self._check_fitted()
        content = {
            "format": FORMAT,
            "version": VERSION,
            "class": type(self).__name__,
            "options": self.get_params(),
            "fitted": {
                name: np.asarray(getattr(self, name)).tolist()
                for name in (*self.fitted_names, "num_classes_")
            },
        }
        path = os.fspath(path)
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "x", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def set_params(self, **params):
        """Sets options, checked as the constructor checks them."""
        unknown = set(params) - set(self.get_params())
        if unknown:
            raise ValueError(
                f"`params` must be options of {type(self).__name__}. "
                f"Received: {sorted(unknown)}"
            )
        checked = type(self)(**{**self.get_params(), **params})
        return super().set_params(**{k: getattr(checked, k) for k in params})

    def __repr__(self):
        """Returns the options that are not defaults, and the fitted values."""
        default = type(self)().get_params()
        shown = {
            name: repr(value)
            for name, value in self.get_params().items()
            if value != default[name]
        }
        for name in self.fitted_names if self.__sklearn_is_fitted__() else ():
            value = np.asarray(getattr(self, name))
            shown[name] = (
                np.array2string(value, precision=6, separator=", ")
                if value.size <= 4
                else f"<{' x '.join(map(str, value.shape))}>"
            )
        listed = ", ".join(f"{name}={value}" for name, value in shown.items())
        return f"{type(self).__name__}({listed})"

    def __sklearn_is_fitted__(self):
        """Whether `fit` was called, for scikit-learn."""
        return all(hasattr(self, name) for name in self.fitted_names)

    def _extend(self, model, name, finish=lambda output: output):
        """A functional model that ends in the layer, then in `finish`."""
        output = _single_output(model)
        self._check_activation(output)
        self._check_classes(output.shape[-1])
        layer = self.as_layer()
        names = {each.name for each in model.layers}
        stem, number = layer.name, 0
        while layer.name in names:
            number += 1
            layer.name = f"{stem}_{number}"
        # `input` keeps a dict of inputs. That of a sequential model is missing
        # before it is called, and another model's if it is part of one.
        inputs = model.inputs[0]
        if not isinstance(model, keras.Sequential):
            inputs = model.input
        return keras.Model(
            inputs, finish(layer(output)), name=f"{model.name}_{name}"
        )

    def _fill(self, result, values, function):
        """Sets `result[i:j] = function(logits of rows i to j, i, j)`.

        Args:
            result: Array `(n, ...)`.
            values: Values of `data.flatten`; checked here.
            function: Called on blocks, from several threads at once.
        """
        self._check_classes(values.shape[1])

        def block(i, j):
            rows = data.to_logits(values[i:j], self.from_probs, index=i)
            result[i:j] = function(rows, i, j)
            return not self.from_probs and data.look_odd(values[i:j])

        row_bytes = max(values.itemsize, 4) * values.shape[1]
        if all(map_blocks(block, len(values), row_bytes)):
            data.warn_of_probabilities()

    def _check_fitted(self):
        if not self.__sklearn_is_fitted__():
            raise ValueError(
                f"This {type(self).__name__} is not fitted yet: call "
                "`fit(logits, labels)` first."
            )

    def _check_classes(self, num_classes):
        """Raises if logits of this last axis cannot be calibrated."""
        expected = self._expected_classes()
        if self.multi_label or num_classes == 1:
            num_classes = 2
        if None not in (num_classes, expected) and num_classes != expected:
            raise ValueError(
                f"`logits` must have the {expected} classes that "
                f"{type(self).__name__} was fitted to. "
                f"Received: {num_classes} classes"
            )

    def _expected_classes(self):
        """The number of classes that `transform` needs; None for any."""
        return None

    def _check_activation(self, output):
        """Raises if the activation of a model contradicts `from_probs`."""
        activation = _activation_of(output)
        if activation in ("softmax", "sigmoid") and not self.from_probs:
            raise ValueError(
                f"`model` must return logits, but it ends in a {activation}. "
                "Construct and fit the calibrator with `from_probs=True`, or "
                "pass the model without its activation. "
                f"Received: {type(self).__name__} with from_probs=False"
            )
        if activation == "linear" and self.from_probs:
            raise ValueError(
                "`model` must return probabilities for a calibrator with "
                "`from_probs=True`. Received: a model that ends without an "
                "activation"
            )


class Calibrator(ClassifierMixin, PostHoc):
    """A map from logits to calibrated logits; see `PostHoc`.

    A subclass also defines `_transform`.
    """

    def transform(self, logits):
        """Returns calibrated logits.

        Args:
            logits: What `fit` takes; or a `tf.data.Dataset` of batches of them
                or of tuples that begin with them.

        Returns:
            A NumPy array of the shape of `logits`, float64 for float64 and
            float32 otherwise; or a dataset with the first component replaced.
        """
        return self._apply(logits, _as_logits)

    def predict_proba(self, logits):
        """Returns calibrated probabilities, like `transform`.

        They have the shape of `logits`. Binary predictions `(N,)` and
        `(..., 1)`, and those of `multi_label=True`, become the probability of
        class 1.
        """
        return self._apply(logits, _as_probabilities)

    def predict(self, logits):
        """Returns the most probable classes, `(...)` or `(..., L)`."""
        calibrated = self.transform(logits)
        if self.multi_label or calibrated.ndim == 1:
            return (calibrated > 0).astype(np.int64)
        if calibrated.shape[-1] == 1:
            return (calibrated[..., 0] > 0).astype(np.int64)
        return calibrated.argmax(axis=-1)

    @property
    def classes_(self):
        """The class ids, as scikit-learn's classifiers have them."""
        return np.arange(self.num_classes_)

    def append_to(self, model, probabilities=None):
        """Returns the model with calibrated outputs, which can be saved.

        Args:
            model: A functional or built sequential Keras model with one output,
                which `transform` takes. It is not changed; its layers are
                shared.
            probabilities: Whether the new model returns probabilities instead
                of logits. By default it returns what `model` does:
                probabilities with `from_probs=True`, logits otherwise.

        Returns:
            A functional `keras.Model`.
        """
        self._check_fitted()
        if probabilities is None:
            probabilities = self.from_probs
        probabilities = checks.flag("probabilities", probabilities)

        def finish(output):
            if not probabilities:
                return output
            is_binary = self.multi_label or output.shape[-1] == 1
            activation = "sigmoid" if is_binary else "softmax"
            return keras.layers.Activation(activation, dtype="float32")(output)

        return self._extend(model, "calibrated", finish)

    def _apply(self, logits, finish):
        """Calibrates and then applies `_as_logits` or `_as_probabilities`."""
        self._check_fitted()
        if data.is_dataset(logits):
            return self._apply_to_dataset(logits, finish)
        values, shape = data.flatten(logits, self.multi_label)
        is_double = values.dtype == np.float64
        result = np.empty(values.shape, np.float64 if is_double else np.float32)
        width = values.shape[1]
        self._fill(
            result,
            values,
            lambda rows, i, j: finish(self._transform(rows), width),
        )
        return result.reshape(shape)

    def _apply_to_dataset(self, dataset, finish):
        import tensorflow as tf

        def apply(first):
            dtype = tf.float64 if first.dtype == tf.float64 else tf.float32
            if first.shape.rank is not None:
                self._check_classes(first.shape[-1])
            result = tf.numpy_function(
                lambda values: self._apply(values, finish), [first], dtype
            )
            return tf.ensure_shape(result, first.shape)

        if isinstance(dataset.element_spec, tuple):
            return dataset.map(lambda first, *rest: (apply(first), *rest))
        return dataset.map(apply)


def read_file(path, classes):
    """Reads what `Calibrator.save` wrote; see `ct.posthoc.load`.

    Args:
        path: Path of the file.
        classes: The calibrators' classes by name.

    Returns:
        A fitted calibrator.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except ValueError as error:
        raise ValueError(
            "`path` must be a whole JSON file written by `save`. "
            f"Received: {path}, where {error}"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(
            f"`path` must be a file written by `save`. Received: {path}, "
            f"which has no format={FORMAT!r}"
        )
    if content.get("version") != VERSION:
        raise ValueError(
            f"`path` must be of version {VERSION}, which this release of "
            f"caltrain_tf reads. Received: version={content.get('version')!r} "
            f"in {path}"
        )
    name = content.get("class")
    if not isinstance(name, str) or name not in classes:
        raise ValueError(
            f"`path` must hold one of {', '.join(classes)}. "
            f"Received: class={name!r} in {path}"
        )
    try:
        calibrator = classes[name](**content["options"])
        _restore(calibrator, content["fitted"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`path` must hold a complete {name}. Received: {path}, where "
            f"{type(error).__name__}: {error}"
        ) from error
    return calibrator


def _restore(calibrator, fitted):
    expected = {*calibrator.fitted_names, "num_classes_"}
    if set(fitted) != expected:
        raise ValueError(
            f"the fitted numbers must be {sorted(expected)}, but they are "
            f"{sorted(fitted)}"
        )
    for name, value in fitted.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fi" or not np.all(np.isfinite(array)):
            raise ValueError(f"{name}={value!r} is not made of finite numbers")
        setattr(calibrator, name, array if array.ndim else array.item())
    checks.count("num_classes_", calibrator.num_classes_, low=2)
    calibrator._check_fitted_values()


def _single_output(model):
    """The only output of a functional model, or an error."""
    outputs = getattr(model, "outputs", None)
    if not isinstance(outputs, list | tuple) or len(outputs) != 1:
        kind = type(model).__name__
        count = "no" if not outputs else str(len(outputs))
        raise ValueError(
            "`model` must be a functional or a built sequential model with one "
            "output. For a subclassed model, or one of several outputs, call "
            "the layer of `as_layer()` on the logits. "
            f"Received: a {kind} with {count} known outputs"
        )
    if len(outputs[0].shape) < 2:
        raise ValueError(
            "`model` must have an output (batch, ..., classes). "
            f"Received: an output of the shape {outputs[0].shape}"
        )
    return outputs[0]


def _activation_of(output):
    """The name of the activation that a Keras tensor comes from, or None."""
    operation, node, _ = output._keras_history
    if hasattr(operation, "outputs") and hasattr(operation, "layers"):
        return _activation_of(operation.outputs[0])
    kind = type(operation).__name__
    if kind in ("Softmax", "Sigmoid"):
        return kind.lower()
    activation = getattr(operation, "activation", None)
    name = getattr(activation, "__name__", type(activation).__name__).lower()
    is_nothing = kind == "Activation" and name == "linear"
    if is_nothing or kind in PASSING_ON:
        inputs = operation._inbound_nodes[node].input_tensors
        return _activation_of(inputs[0])
    return name if activation is not None else None


def _as_logits(calibrated, width):
    """Calibrated logits `(n, K)` in the width of the predictions."""
    return calibrated if width > 1 else calibrated[:, 1:] - calibrated[:, :1]


def _as_probabilities(calibrated, width):
    """Calibrated probabilities; only that of class 1 for a width of 1."""
    return softmax(calibrated, axis=1)[:, -width:]
