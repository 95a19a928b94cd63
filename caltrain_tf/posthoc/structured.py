"""Structured vector and matrix scaling: one penalty per kind of parameter."""

import numpy as np

from caltrain_tf import checks
from caltrain_tf.posthoc import affine
from caltrain_tf.posthoc.temperature import most_likely, survey

# Cross-validation tries powers of the step, with exponents in this range.
STEP, WEAKEST, STRONGEST = 4.0, -5, 2
# Folds that are held out at most. More of them take longer and choose alike.
MOST_FOLDS = 3


class StructuredCalibrator(affine.AffineCalibrator):
    """An affine map of tempered log-probabilities, with a structured penalty.

    The penalty of each parameter grows with the number of parameters of its
    kind, and falls with the number of examples.
    """

    log_probabilities = True
    fitted_names = ("scale_", "bias_", "temperature_", "strength_", "centred_")

    def __init__(
        self,
        *,
        strength="cv",
        centred=None,
        cv=None,
        max_iterations=1000,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(
            cv=cv,
            max_iterations=max_iterations,
            from_probs=from_probs,
            multi_label=multi_label,
            ignore_class=ignore_class,
        )
        if not (isinstance(checks.plain(strength), str) and strength == "cv"):
            try:
                strength = checks.number(
                    "strength", strength, low=0, closed=True
                )
            except ValueError:
                raise ValueError(
                    '`strength` must be a number >= 0, or "cv". '
                    f"Received: strength={strength!r}"
                ) from None
        self.strength = strength
        if centred is not None:
            centred = checks.flag("centred", centred)
        self.centred = centred

    def _fit_parameters(self, rows):
        view = survey(rows)
        inverse = most_likely(rows, view)
        identity = self._identity(rows.num_classes)
        unit = structured_penalty(identity, view.count)
        centred, strength = self.centred, self.strength
        if centred is None:
            centred = strength != "cv"

        rows = rows.changed(lambda logits: tempered(logits, inverse, centred))
        start = identity
        if strength == "cv":
            strength, start = choose_strength(
                affine.CrossValidation(
                    rows,
                    view.count,
                    self.cv,
                    identity,
                    identity,
                    MOST_FOLDS,
                ),
                unit,
            )
        self._fit_all(rows, start, identity, strength * unit)
        self.temperature_ = 1.0 / inverse
        self.strength_ = float(strength)
        self.centred_ = int(centred)

    def _inputs(self, logits):
        return tempered(logits, 1.0 / self.temperature_, self.centred_)

    def _layer_options(self):
        return {"temperature": self.temperature_, "centred": self.centred_}

    def _check_fitted_values(self):
        super()._check_fitted_values()
        checks.number("temperature_", self.temperature_, low=0)
        checks.number("strength_", self.strength_, low=0, closed=True)
        checks.choice("centred_", self.centred_, (0, 1))


class StructuredVectorScaling(StructuredCalibrator):
    """Scales and shifts the log-probability of each class (SVS).

    Temperature scaling is fitted first, to N examples of K classes. Then, with
    the tempered log-probabilities z, the fit minimises

        mean NLL of softmax(scale * z + bias)
            + strength K / N (|scale - 1|^2 + |bias|^2)

    With a given strength (the authors choose 1), z is centred over the
    classes. By default, cross-validation moves the strength from 1, by factors
    of 4 down to 1/1024 or up to 16, as long as each step is better by more than
    one standard error, and z is not centred: the log-probabilities of a
    confident prediction have a small mean, which lets the scale correct the
    confidence of each class.

    Args:
        strength: A number of at least 0, or `"cv"` for cross-validation.
        centred: Whether to centre z over the classes. By default True for a
            given strength, and False with cross-validation.
        cv: Number of cross-validation folds, of which at most three are held
            out. By default each example is left out by itself, which a formula
            does without further fits; or 5 folds if there are fewer than 1,000
            examples, or 30 per class.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K,)`.
        bias_: `(K,)`.
        temperature_: That of temperature scaling.
        strength_: The strength of the fit.
        centred_: 1 if z was centred, else 0.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> shifted = logits + [1, 0, 0]
        >>> scaler = ct.posthoc.StructuredVectorScaling(strength=1.0)
        >>> bias = scaler.fit(shifted, labels).bias_
        >>> float(np.round(bias[0] - bias[1], 0))
        -2.0

    Reference:
        Berta et al., "Structured Matrix Scaling for Multi-Class Calibration",
        2026.
    """

    kind = "vector"


class StructuredMatrixScaling(StructuredCalibrator):
    """Any affine map of the log-probabilities, with a structured penalty (SMS).

    Temperature scaling is fitted first, to N examples of K classes. Then, with
    the tempered log-probabilities z, the fit minimises

        mean NLL of softmax(scale @ z + bias)
            + strength K / N (|diagonal - 1|^2 + |bias|^2)
            + strength K (K - 1) / N |off-diagonal|^2

    where the diagonal is that of the scale. With a given strength, z is centred
    over the classes. By default, cross-validation chooses the strength, and z
    is not centred; see `StructuredVectorScaling`.

    Args:
        strength: A number of at least 0, or `"cv"` for cross-validation.
        centred: Whether to centre z over the classes. By default True for a
            given strength, and False with cross-validation.
        cv: Number of cross-validation folds, 5 by default. At most three of
            them are held out, and fewer for large data.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K, K)`.
        bias_: `(K,)`.
        temperature_: That of temperature scaling.
        strength_: The strength of the fit.
        centred_: 1 if z was centred, else 0.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> mixed = logits + 0.5 * logits[:, [1, 2, 0]]
        >>> scaler = ct.posthoc.StructuredMatrixScaling().fit(mixed, labels)
        >>> scaler.scale_.shape
        (3, 3)

    Reference:
        Berta et al., "Structured Matrix Scaling for Multi-Class Calibration",
        2026.
    """

    kind = "matrix"


def choose_strength(validation, unit):
    """Searches the strength by cross-validation, from 1 on.

    Weaker penalties are tried first, then stronger ones, each from the fits of
    the one before. A step is taken if it lowers the held-out negative
    log-likelihood by more than one standard error: on few examples, the
    smallest one is chosen by chance, and is often much too weak.

    Args:
        validation: A `CrossValidation`.
        unit: The penalty of strength 1, in the shape of the parameters.

    Returns:
        The strength, and parameters as a start for the fit to all rows.
    """
    if not validation.pairs:
        return 1.0, validation.start
    best, fits = 0, validation.fit(unit)
    for direction in (-1, 1):
        while WEAKEST <= best + direction <= STRONGEST:
            other = validation.fit(STEP ** (best + direction) * unit, fits)
            if not is_clear(*validation.sum(decrease, fits, other)):
                break
            best, fits = best + direction, other
        if best != 0:
            break
    return STEP**best, validation.middle(fits)


def decrease(weights, before, after):
    """Sums of w, w d, w^2, w^2 d and w^2 d^2, for decreases d of the loss."""
    difference, squares = before - after, weights**2
    return (
        weights.sum(),
        weights @ difference,
        squares.sum(),
        squares @ difference,
        squares @ difference**2,
    )


def is_clear(mass, total, squares, first, second):
    """Whether the mean decrease is larger than its standard error."""
    mean = total / mass
    variance = second - 2 * mean * first + mean**2 * squares
    return mean > np.sqrt(max(variance, 0.0)) / mass


def tempered(logits, inverse, centred):
    """Log-probabilities at temperature 1/`inverse`, optionally centred.

    The result is in Fortran order, which `regression` prefers.
    """
    # SciPy's `log_softmax` takes six times as long for 100 classes.
    logs = np.multiply(logits, logits.dtype.type(inverse), order="F")
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    if centred:
        logs -= logs.mean(axis=1, keepdims=True)
    return logs


def structured_penalty(identity, count):
    """The penalty of strength 1 for each parameter, in the identity's shape."""
    num_classes = len(identity)
    penalty = np.full_like(identity, num_classes / count)
    if identity.shape[1] > 2:
        is_off_diagonal = ~np.eye(*identity.shape, dtype=bool)
        is_off_diagonal[:, -1] = False
        penalty[is_off_diagonal] *= num_classes - 1
    return penalty
