"""The choice of a calibrator, or of none, by cross-validation."""

import warnings

from sklearn.base import clone

from caltrain_tf import checks
from caltrain_tf.metrics import scores
from caltrain_tf.posthoc import affine, base, temperature
from caltrain_tf.posthoc.compare import (
    NOTHING,
    default_calibrators,
    out_of_fold,
)

# From few to many parameters; see `AutoCalibration`.
SIMPLEST_FIRST = (
    "ts",
    "ensemble",
    "structured_vector",
    "beta",
    "structured_matrix",
    "matrix",
    "isotonic",
)
# Examples that a fit of K x K parameters needs at least, for each class.
PER_CLASS = 10
# Examples of each class that isotonic curves need at least.
PER_CURVE = 50


class AutoCalibration(base.Calibrator):
    """Chooses the simplest calibrator of about the lowest NLL, or none.

    The calibrators that fit the task and the number of examples are fitted to
    all but one of `cv` folds in turn, and measured on the fold that they have
    not seen. If none has a lower NLL than doing nothing, `"none"` is chosen.
    Otherwise the simplest one whose NLL is within one standard error (of the
    paired difference) of the lowest one is chosen, and fitted to all examples.
    Simpler means fewer fitted parameters. For K classes, the simplest first:

    - `"ts"`, `TemperatureScaling`: 1 parameter;
    - `"ensemble"`, `EnsembleTemperatureScaling`: 3;
    - `"structured_vector"`, `StructuredVectorScaling`, for more than 100
      classes: 2 K;
    - `"beta"`, `BetaCalibration`: 3 for two classes, 3 K for more;
    - `"structured_matrix"`, `StructuredMatrixScaling`, up to 100 classes:
      K^2 + K, which a penalty draws to temperature scaling;
    - `"matrix"`, `MatrixScaling`, up to 100 classes, from 10 examples per class
      on: K^2 + K, with a weaker penalty;
    - `"isotonic"`, `IsotonicCalibration`, from 50 examples per class on: up to
      the number of examples for each curve.

    Doing nothing, which has no parameters, gets no such margin: a gain that is
    within one standard error is mostly real. In `benchmarks/auto.py`, a margin
    for it makes the mean rank worse than that of structured matrix scaling.

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
        ts has a cross-validated NLL of ...
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
        if len(labels) < 2:
            raise ValueError(
                "`logits` must hold at least two examples, to hold one out. "
                f"Received: {len(labels)}"
            )
        folds = base.folds(labels, min(self.cv, len(labels)))
        tried = candidates(*logits.shape)
        losses = {}
        for name, each in {NOTHING: None, **tried}.items():
            held_out = out_of_fold(each, logits, labels, weights, folds)
            losses[name] = scores.nll_of_examples(held_out)
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
    """The calibrators for so many examples and classes, the simplest first."""
    found = default_calibrators(num_classes)
    if "structured_matrix" in found:
        del found["structured_vector"]
    if num_examples < PER_CLASS * num_classes:
        found.pop("matrix", None)
    if num_examples < PER_CURVE * num_classes:
        del found["isotonic"]
    return {name: found[name] for name in SIMPLEST_FIRST if name in found}


def choose(losses, weights):
    """The name to choose, the mean losses by name, and why."""
    means = {name: float(weights @ each) for name, each in losses.items()}
    name = best = min(means, key=means.get)
    if best != NOTHING:
        name = next(
            name
            for name, each in losses.items()
            if name != NOTHING
            and not affine.is_clear(each - losses[best], weights, 1.0)
        )
    reason = f"{name} has a cross-validated NLL of {means[name]:.4g}"
    if name != best:
        reason += (
            f" and is the simplest within one standard error of {best}, the "
            f"lowest, {means[best]:.4g}"
        )
    if name == NOTHING:
        reason += ", and no calibrator a lower one"
    else:
        reason += f"; doing nothing has {means[NOTHING]:.4g}"
    return name, means, f"{reason}."
