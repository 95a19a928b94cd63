"""Base classes of calibrators and prediction sets, and their JSON files."""

import json
import os
import sys
import uuid
import warnings

import keras
import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import KFold, StratifiedKFold

from caltrain_tf import checks, inputs

FORMAT = "caltrain_tf.posthoc"
VERSION = 1
# Layers after which probabilities are still probabilities.
PASSING_ON = ("Cast", "Dropout", "Flatten", "Identity", "Reshape")
# Fewer binary logits may all lie in [0, 1] by chance.
FEWEST_PROBABILITIES = 10


class Data:
    """Examples in one or many batches, which every pass reads again.

    Args:
        batches: `inputs.Examples`, or a function that returns an iterator of
            them.
        from_probs: Whether the predictions are probabilities.
    """

    def __init__(self, batches, from_probs):
        self.batches = batches
        self.from_probs = from_probs
        first = batches
        if callable(batches):
            first = next(batches(), None)
            if first is None:
                raise ValueError(
                    "`logits` must hold at least one batch with an example "
                    "that counts. Received: none"
                )
        _warn_of_probabilities(first)
        self.num_classes = max(first.predictions.shape[1], 2)

    def each(self, function):
        """Yields `function(logits, labels)` and weights, for each batch.

        Args:
            function: Gets logits `(m, K)` and labels `(m,)`, which it must not
                change, and returns a tuple of arrays of m elements. Called from
                several threads at once for large batches.
        """
        if not callable(self.batches):
            yield self._map(self.batches, function)
            return
        for number, examples in enumerate(self.batches()):
            try:
                yield self._map(examples, function)
            except ValueError as error:
                raise ValueError(f"In batch {number}: {error}") from error

    def _map(self, examples, function):
        results = examples.map(
            lambda block, labels: function(
                to_logits(block, self.from_probs), labels
            )
        )
        weights = examples.weight
        if weights is None:
            weights = np.ones(len(results[0]))
        return results, weights

    def map(self, function):
        """The arrays of `each` for all examples, followed by the weights."""
        parts = [(*arrays, w) for arrays, w in self.each(function)]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def mean(self, function):
        """Weighted means of the arrays, in float64."""
        total, mass = 0.0, 0.0
        for arrays, weights in self.each(function):
            total = total + np.array([weights @ array for array in arrays])
            mass += weights.sum()
        return total / mass

    def whole(self):
        """Logits `(n, K)`, labels `(n,)`, and weights `(n,)` that sum to 1."""
        predictions, labels = self.batches.whole()
        weights = self.batches.weight
        if weights is None:
            weights = np.ones(len(labels))
        # Large weights could overflow their sum.
        weights = weights / weights.max()
        logits = to_logits(predictions, self.from_probs)
        return logits, labels, weights / weights.sum()


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
                tensor, or anything else with `__array__`.
            labels: Class ids, or one-hot rows.
            sample_weight: Weights >= 0, of the examples' shape or of its first
                axes. Only the ratios of weights matter.

        Returns:
            The object itself.
        """
        data = self._read_data(logits, labels, sample_weight)
        self._fit(data)
        self.num_classes_ = data.num_classes
        return self

    def _read_data(self, logits, labels, sample_weight):
        """`Data` of the arguments of `fit`."""
        if labels is None:
            _refuse_batches(logits, f"{type(self).__name__} needs arrays")
            raise ValueError("`labels` must be given. Received: labels=None")
        return Data(self._read(logits, labels, sample_weight), self.from_probs)

    def _read(self, logits, labels=None, sample_weight=None, **options):
        """`inputs.Examples` of predictions."""
        return inputs.read(
            logits,
            labels,
            from_logits=not self.from_probs,
            multi_label=self.multi_label,
            ignore_class=self.ignore_class if labels is not None else None,
            sample_weight=sample_weight,
            name="logits",
            of_calibrator=True,
            **options,
        )

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

    def _read_new(self, logits):
        """`inputs.Examples` of predictions without labels."""
        self._check_fitted()
        _refuse_batches(logits, "map the layer of `as_layer()` over a dataset")
        examples = self._read(logits, needs_labels=False)
        self._check_classes(examples.predictions.shape[1])
        _warn_of_probabilities(examples)
        return examples

    def _check_fitted(self):
        if not self.__sklearn_is_fitted__():
            raise ValueError(
                f"This {type(self).__name__} is not fitted yet: call "
                "`fit(logits, labels)` first."
            )

    def _check_classes(self, num_classes):
        """Raises if the last axis has other classes than `fit` has seen."""
        if self.multi_label or num_classes == 1:
            num_classes = 2
        if num_classes not in (None, self.num_classes_):
            raise ValueError(
                f"`logits` must have the {self.num_classes_} classes that "
                f"{type(self).__name__} was fitted to. "
                f"Received: {num_classes} classes"
            )

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
            logits: An array of the shapes that `fit` takes. For a
                `tf.data.Dataset`, map the layer of `as_layer()` over it.

        Returns:
            A NumPy array of the shape of `logits`, float64 for float64 and
            float32 otherwise.
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
        examples = self._read_new(logits)
        is_binary = examples.predictions.shape[1] == 1
        (result,) = examples.map(
            lambda block, _: (
                finish(
                    self._transform(to_logits(block, self.from_probs)),
                    is_binary,
                ),
            )
        )
        return result.reshape(np.shape(logits))


def to_logits(predictions, from_probs):
    """Predictions `(n, K)` as logits, in the same precision."""
    if not from_probs:
        return predictions
    return np.log(np.maximum(predictions, inputs.SMALLEST_CALIBRATED))


def is_dataset(values):
    """Whether it is a `tf.data.Dataset`, without importing TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(
        values, tensorflow.data.Dataset
    )


def may_hold_batches(values):
    """Whether it is an iterable that is no array."""
    is_iterable = hasattr(values, "__iter__") and not hasattr(
        values, "__array__"
    )
    return is_iterable and not isinstance(values, str | bytes | dict)


def folds(labels, num_folds, seed=0):
    """Pairs of row numbers outside and inside of each of the folds.

    Folds are shuffled, and have the same shares of the classes as far as the
    classes have enough examples.
    """
    kind = StratifiedKFold
    if np.bincount(labels).max() < num_folds:
        kind = KFold
    splitter = kind(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        return list(splitter.split(np.zeros(len(labels)), labels))


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


def _as_logits(calibrated, is_binary):
    """Calibrated logits `(n, K)`, or the one of class 1 against class 0."""
    return calibrated[:, 1:] - calibrated[:, :1] if is_binary else calibrated


def _as_probabilities(calibrated, is_binary):
    """Calibrated probabilities `(n, K)`, or that of class 1."""
    return softmax(calibrated, axis=1)[:, 1 if is_binary else 0 :]


def _refuse_batches(logits, reason):
    # Lists and tuples may hold the numbers of an array.
    if may_hold_batches(logits) and not isinstance(logits, list | tuple):
        raise ValueError(
            f"`logits` must be an array: {reason}. "
            f"Received: {type(logits).__name__}"
        )


def _warn_of_probabilities(examples):
    """Warns if binary logits look like probabilities; `read` sees others."""
    values = examples.predictions
    if not examples.from_logits or values.shape[1] > 1:
        return
    if len(values) >= FEWEST_PROBABILITIES and np.all(
        (values >= 0) & (values <= 1)
    ):
        checks.warn(
            "`logits` look like probabilities: all lie in [0, 1]. Pass logits, "
            "or construct the calibrator with `from_probs=True`."
        )
