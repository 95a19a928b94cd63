"""The choice of a calibrator, or of none, by cross-validation."""

import warnings

import numpy as np
from sklearn.base import clone

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import scores
from caltrain_tf.posthoc import base, temperature
from caltrain_tf.posthoc.compare import (
    NOTHING,
    default_calibrators,
    out_of_fold,
)

# Names of `default_calibrators`, those to prefer first.
ORDER = (
    "structured_matrix",
    "ts",
    "ensemble",
    "structured_vector",
    "matrix",
    "isotonic",
)
# Examples that a fit of K x K parameters needs at least, for each class.
PER_CLASS = 10
# Examples of each class that isotonic curves need at least.
PER_CURVE = 50


class AutoCalibration(base.Calibrator):
    """Chooses a calibrator, or none, by cross-validated NLL.

    The calibrators that fit the task and the number of examples are fitted to
    all but one of `cv` folds in turn, and measured on the fold that they have
    not seen. The first in the following list whose NLL is within one standard
    error (of the paired difference) of the lowest one is chosen; but doing
    nothing, `"none"`, if that has no higher NLL. The list begins with the ones
    that are closest to temperature scaling where data are few:

    - `"structured_matrix"`: `StructuredMatrixScaling`, up to 100 classes;
    - `"ts"`: `TemperatureScaling`;
    - `"ensemble"`: `EnsembleTemperatureScaling`;
    - `"structured_vector"`: `StructuredVectorScaling`, for more than 100
      classes;
    - `"matrix"`: `MatrixScaling`, up to 100 classes, from 10 examples per class
      on;
    - `"isotonic"`: `IsotonicCalibration`, from 50 examples per class on.

    The chosen calibrator is then fitted to all examples. Order and rule are
    those of the lowest mean rank among many alternatives in
    `benchmarks/auto.py`.

    Args:
        cv: Number of folds.
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        choice_: The name of the chosen calibrator, as above.
        calibrator_: The fitted calibrator; for `"none"`, a temperature of 1.
        nll_: Dict from names to their cross-validated NLL.
        reason_: A sentence that says why.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> logits = 2 * rng.normal(size=(2000, 3))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> auto = ct.posthoc.AutoCalibration().fit(2 * logits, labels)
        >>> print(auto.reason_)
        structured_matrix has a cross-validated NLL of ...
        >>> ct.posthoc.AutoCalibration().fit(logits, labels).choice_
        'none'
    """

    fitted_names = ("choice_", "nll_", "reason_")

    def __init__(
        self,
        *,
        cv=5,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_probs, multi_label, ignore_class)
        self.cv = checks.count("cv", cv, low=2)

    def _fit(self, logits, labels, weights):
        tried = candidates(*logits.shape)
        if len(labels) < 2:
            raise ValueError(
                "`logits` must hold at least two examples, to hold one out. "
                f"Received: {len(labels)}"
            )
        folds = base.folds(labels, min(self.cv, len(labels)))
        losses = {}
        for name, each in tried.items():
            held_out = out_of_fold(each, logits, labels, weights, folds)
            losses[name] = _losses(held_out, labels)
        losses[NOTHING] = _losses(logits, labels)
        self.choice_, self.nll_, self.reason_ = choose(losses, weights)
        best = tried.get(self.choice_, temperature.TemperatureScaling())
        self.calibrator_ = clone(best).set_params(
            from_probs=self.from_probs, multi_label=self.multi_label
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self.calibrator_._fit(logits, labels, weights)
        if self.choice_ == NOTHING:
            self.calibrator_.temperature_ = 1.0
        self.calibrator_.num_classes_ = logits.shape[1]

    def _state(self):
        fitted = {"calibrator_": self.calibrator_._state()}
        for name in self.fitted_names:
            fitted[name] = getattr(self, name)
        return {**super()._state(), "fitted": fitted}

    def _restore(self, fitted):
        known = default_calibrators(num_classes=2).values()
        kinds = {type(each).__name__: type(each) for each in known}
        self.calibrator_ = base.read_state(fitted["calibrator_"], kinds)
        self.num_classes_ = self.calibrator_.num_classes_
        for name in self.fitted_names:
            setattr(self, name, fitted[name])

    def __repr__(self):
        """Returns the options, the chosen calibrator and why it was chosen."""
        if not hasattr(self, "num_classes_"):
            return super().__repr__()
        return f"{clone(self)!r}: {self.calibrator_!r}, because {self.reason_}"

    def _transform(self, logits):
        return self.calibrator_._transform(logits)

    def _layer(self, **options):
        return self.calibrator_._layer(**options)


def candidates(num_examples, num_classes):
    """The calibrators for so many examples, those to prefer first."""
    found = default_calibrators(num_classes)
    names = [name for name in ORDER if name in found]
    if "structured_matrix" in names:
        names.remove("structured_vector")
    if "matrix" in names and num_examples < PER_CLASS * num_classes:
        names.remove("matrix")
    if num_examples < PER_CURVE * num_classes:
        names.remove("isotonic")
    return {name: found[name] for name in names}


def choose(losses, weights):
    """The name to choose, the mean losses by name, and why."""
    means = {name: float(weights @ each) for name, each in losses.items()}
    others = [name for name in losses if name != NOTHING]
    best = min(others, key=means.get)
    for name in others:
        worse = losses[name] - losses[best]
        error = np.sqrt(np.sum((weights * (worse - weights @ worse)) ** 2))
        if means[name] - means[best] <= error:
            break
    if means[NOTHING] <= means[name]:
        reason = f"doing nothing has a lower one, {means[NOTHING]:.4g}"
        if name != best:
            reason += f"; {best} has {means[best]:.4g}"
        return NOTHING, means, _sentence(name, means, reason)
    reason = f"doing nothing has {means[NOTHING]:.4g}"
    if name != best:
        reason += (
            f", and {best}, the lowest, {means[best]:.4g}, which is within one "
            f"standard error ({error:.2g})"
        )
    return name, means, _sentence(name, means, reason)


def _sentence(name, means, reason):
    return f"{name} has a cross-validated NLL of {means[name]:.4g}; {reason}."


def _losses(logits, labels):
    """The negative log-likelihood of each example."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*look.* like probabilities")
        return scores.nll_of_examples(
            inputs.read(logits, labels, from_logits=True)
        )
