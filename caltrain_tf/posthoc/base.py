"""Base classes of calibrators and prediction sets, and their JSON files."""

import json
import pathlib
import warnings

import keras
import numpy as np
import threadpoolctl
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from caltrain_tf import checks, inputs

FORMAT, VERSION = "caltrain_tf.posthoc", 1
# On a busy machine, threads of BLAS wait for each other.
BLAS = threadpoolctl.ThreadpoolController()
# Fewer binary logits may all lie in [0, 1] by chance.
FEWEST_PROBABILITIES = 10


class PostHoc(BaseEstimator):
    """Base class of objects that are fitted to predictions and labels.

    Predictions may have the shape

    - `(..., K)`: K classes; all leading axes are examples: images, pixels or
      tokens. Labels: class ids `(...)`, or one-hot rows `(..., K)`.
    - `(N,)` or `(..., 1)`: the logit, or probability, of class 1 of two.
      Labels: 0 or 1, `(...)` or `(..., 1)`.
    - `(..., L)` with `multi_label=True`: L independent binary problems, which
      share one fit. Labels: 0 or 1, `(..., L)`.

    A subclass lists the attributes that a fit sets in `fitted_names`, and
    defines `_fit` and `_layer`. For the arguments see `TemperatureScaling`.
    """

    fitted_names = ()

    def __init__(self, from_probs=False, multi_label=False, ignore_class=None):
        self.from_probs = checks.flag("from_probs", from_probs)
        self.multi_label = checks.flag("multi_label", multi_label)
        self.ignore_class = checks.ignore_class(ignore_class)

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
        examples = self._read(logits, labels, sample_weight)
        logits, labels, weights = arrays_of(examples, self.from_probs)
        with BLAS.limit(limits=1, user_api="blas"):
            self._fit(logits, labels, weights)
        self.num_classes_ = logits.shape[1]
        return self

    def _read(self, logits, labels=None, sample_weight=None, **options):
        """`inputs.Examples` of predictions."""
        if hasattr(logits, "element_spec"):  # A `tf.data.Dataset`.
            raise ValueError(
                "`logits` must be an array: only the fit of TemperatureScaling "
                "takes batches, which hold labels and weights. Map the layer "
                "of `as_layer()` over a dataset. "
                f"Received: {type(logits).__name__}"
            )
        examples = inputs.read(
            logits,
            labels,
            from_logits=not self.from_probs,
            multi_label=self.multi_label,
            ignore_class=self.ignore_class if labels is not None else None,
            sample_weight=sample_weight,
            name="logits",
            **options,
        )
        values = examples.predictions
        # `read` sees probabilities of several classes.
        is_binary = not self.from_probs and values.shape[1] == 1
        is_enough = len(values) >= FEWEST_PROBABILITIES
        if is_binary and is_enough and np.all((values >= 0) & (values <= 1)):
            checks.warn(
                "`logits` look like probabilities: all lie in [0, 1]. Pass "
                "logits, or construct the calibrator with `from_probs=True`."
            )
        return examples

    def _read_new(self, logits):
        """`inputs.Examples` of predictions without labels."""
        check_is_fitted(self, "num_classes_")
        examples = self._read(logits, needs_labels=False)
        self._check_classes(examples.predictions.shape[1])
        return examples

    def as_layer(self):
        """Returns a Keras layer that does the same and does not train."""
        check_is_fitted(self, "num_classes_")
        return self._layer(
            from_probs=self.from_probs, multi_label=self.multi_label
        )

    def save(self, path):
        """Writes a JSON file, whole or not at all, for `ct.posthoc.load`."""
        check_is_fitted(self, "num_classes_")
        content = {"format": FORMAT, "version": VERSION, **self._state()}
        path = pathlib.Path(path)
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
        temporary.replace(path)

    def _state(self):
        """What a file holds."""
        return {
            "class": type(self).__name__,
            "options": self.get_params(),
            "fitted": {
                name: np.asarray(getattr(self, name)).tolist()
                for name in (*self.fitted_names, "num_classes_")
            },
        }

    def _restore(self, fitted):
        """Sets what a fit has found, as it is in a file."""
        for name in (*self.fitted_names, "num_classes_"):
            value = np.asarray(fitted[name], np.float64)
            setattr(self, name, value if value.ndim else fitted[name])

    def set_params(self, **params):
        """Sets options, checked as the constructor checks them."""
        checked = type(self)(**{**self.get_params(), **params})
        return super().set_params(**checked.get_params())

    def __repr__(self):
        """Returns the options that are not defaults, and the fitted values."""
        default = type(self)().get_params()
        shown = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != default[name]
        ]
        for name in self.fitted_names if hasattr(self, "num_classes_") else ():
            value = np.asarray(getattr(self, name))
            text = f"<{' x '.join(map(str, value.shape))}>"
            if value.size <= 4:
                text = np.array2string(value, precision=6, separator=", ")
            shown.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _extend(self, model, name, finish=lambda output: output):
        """A functional model that ends in the layer, then in `finish`."""
        layer = self.as_layer()
        outputs = getattr(model, "outputs", None) or []
        if len(outputs) != 1 or len(outputs[0].shape) < 2:
            raise ValueError(
                "`model` must be a functional or a built sequential model with "
                "one output (batch, ..., classes). For any other model, call "
                "the layer of `as_layer()` on the logits. Received: a "
                f"{type(model).__name__} with {len(outputs)} known outputs"
            )
        activation, kind = _activation_of(outputs[0]), "logits"
        wrong = ("softmax", "sigmoid")
        if self.from_probs:
            kind, wrong = "probabilities", ("linear",)
        if activation in wrong:
            raise ValueError(
                f"`model` must return {kind} for a calibrator with "
                f"from_probs={self.from_probs}. Received: a model that ends in "
                f"the activation {activation!r}. Construct and fit the "
                f"calibrator with `from_probs={not self.from_probs}`."
            )
        self._check_classes(outputs[0].shape[-1])
        if any(each.name == layer.name for each in model.layers):
            layer.name += f"_{len(model.layers)}"
        # `input` keeps a dict of inputs. That of a sequential model is missing
        # before it is called, and another model's if it is part of one.
        is_sequential = isinstance(model, keras.Sequential)
        return keras.Model(
            model.inputs[0] if is_sequential else model.input,
            finish(layer(outputs[0])),
            name=f"{model.name}_{name}",
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


class Calibrator(ClassifierMixin, PostHoc):
    """A map to calibrated logits: a `PostHoc` that defines `_transform`."""

    def transform(self, logits):
        """Returns calibrated logits of the shape of `logits`.

        They are float64 for float64 and float32 otherwise.
        """
        examples = self._read_new(logits)
        is_binary = examples.predictions.shape[1] == 1

        def of_block(block, _):
            calibrated = self._transform(to_logits(block, self.from_probs))
            if is_binary:
                calibrated = calibrated[:, 1:] - calibrated[:, :1]
            return (calibrated,)

        return examples.map(of_block)[0].reshape(np.shape(logits))

    def predict_proba(self, logits):
        """Returns calibrated probabilities of the shape of `logits`.

        Those of `(N,)`, `(..., 1)` and `multi_label=True` are of class 1.
        """
        calibrated = self.transform(logits)
        if self._is_binary(calibrated):
            return expit(calibrated)
        return softmax(calibrated, axis=-1)

    def predict(self, logits):
        """Returns the most probable classes, `(...)` or `(..., L)`."""
        calibrated = self.transform(logits)
        if not self._is_binary(calibrated):
            return calibrated.argmax(axis=-1)
        if calibrated.ndim > 1 and not self.multi_label:
            calibrated = calibrated[..., 0]
        return (calibrated > 0).astype(np.int64)

    def _is_binary(self, outputs):
        *first, last = outputs.shape
        return self.multi_label or not first or last == 1

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
                of logits. By default it returns what `model` does.

        Returns:
            A functional `keras.Model`.
        """
        if probabilities is None:
            probabilities = self.from_probs

        def finish(output):
            activation = "sigmoid" if self._is_binary(output) else "softmax"
            return keras.layers.Activation(activation, dtype="float32")(output)

        if not checks.flag("probabilities", probabilities):
            return self._extend(model, "calibrated")
        return self._extend(model, "calibrated", finish)


def to_logits(predictions, from_probs):
    """Predictions `(n, K)` as logits, in the same precision."""
    if not from_probs:
        return predictions
    return np.log(np.maximum(predictions, inputs.SMALLEST_CALIBRATED))


def arrays_of(examples, from_probs):
    """Logits `(n, K)`, labels `(n,)`, and weights `(n,)` that sum to 1."""
    predictions, labels = examples.whole()
    weights = examples.weight
    weights = np.ones(len(labels)) if weights is None else weights
    return to_logits(predictions, from_probs), labels, weights / weights.sum()


def number_or_none(name, value):
    """Checks a number >= 0, or None."""
    if value is None:
        return None
    return checks.number(name, value, low=0, closed=True)


def folds(labels, num_folds, seed=0):
    """Pairs of row numbers outside and inside of each of the folds."""
    # Stratified folds need a class with an example for each of them.
    is_enough = np.bincount(labels).max() >= num_folds
    kind = StratifiedKFold if is_enough else KFold
    splitter = kind(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        return list(splitter.split(np.zeros(len(labels)), labels))


def read_state(state, classes):
    """The object of a `_state`, of one of the classes by name."""
    kind, options = classes[state["class"]], dict(state["options"])
    # Other versions have other options, which only a fit needs.
    for name in options.keys() - kind().get_params().keys():
        del options[name]
    calibrator = kind(**options)
    calibrator._restore(state["fitted"])
    return calibrator


def read_file(path, classes):
    """Reads what `save` wrote, of one of the classes by name."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        kind = content["format"], content["version"]
        if kind != (FORMAT, VERSION):
            raise ValueError(f"{kind} should be {(FORMAT, VERSION)}")
        return read_state(content, classes)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "`path` must be a file that `save` of this version wrote. "
            f"Received: {path}, where {type(error).__name__}: {error}"
        ) from error


def _activation_of(output):
    """The name of the activation that a Keras tensor comes from, or None."""
    operation = output._keras_history.operation
    if isinstance(operation, keras.Model):
        return _activation_of(operation.outputs[0])
    activation = getattr(operation, "activation", type(operation))
    name = getattr(activation, "__name__", type(activation).__name__).lower()
    # What is before such a layer is not known.
    is_nothing = isinstance(operation, keras.layers.Activation)
    return None if is_nothing and name == "linear" else name
