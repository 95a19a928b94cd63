"""Affine maps of logits or log-probabilities, fitted with a penalty.

    mean NLL(outputs) + sum(strength (parameters - centre)^2)

Vector, matrix, Dirichlet and structured scaling differ in their inputs, in the
strength of the penalty for each parameter, and in where it is 0. Parameters are
an array `(K, m)` whose last column is the bias: with m = K + 1 the outputs are
`inputs @ parameters[:, :-1].T + bias`, and with m = 2 they are
`inputs * parameters[:, 0] + bias`. Strengths that are not given are chosen by
cross-validation.
"""

import math

import numpy as np
import threadpoolctl
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning

from caltrain_tf import checks, layers
from caltrain_tf.posthoc import base, temperature

# Strengths that cross-validation tries, for each parameter in the mean of the
# penalty. The strongest ones leave the parameters where they start.
STRENGTHS = 10.0 ** np.arange(1, -7, -1)
# A path of strengths ends when this many in a row were no better, or one was
# worse by this factor.
PATIENCE, CLEARLY_WORSE = 2, 1.02
# Structured scaling tries powers of the step, with exponents in this range.
STEP, WEAKEST, STRONGEST = 4.0, -5, 2
# Folds by default, and folds that structured scaling holds out at most.
FOLDS, MOST_FOLDS = 5, 3
# Parameters x rows x folds that cross-validation may take; where all folds
# would take more, only the first ones are held out.
LARGEST_FOLDS = 1.2e8
# Fits of cross-validation end far below the standard error of a held-out loss.
CV_ITERATIONS, CV_TOLERANCE = 30, 1e-5
# Share by which a held-out loss above that of temperature scaling is harm.
HARM = 0.02


class AffineCalibrator(base.Calibrator):
    """`inputs @ scale_.T + bias_`, or `inputs * scale_ + bias_`.

    A subclass defines `_fit_to`, and may define `_inputs`.
    """

    kind = None
    log_probabilities = False

    def __init__(self, *, cv, max_iterations, **options):
        super().__init__(**options)
        self.cv = cv if cv is None else checks.count("cv", cv, low=2)
        self.max_iterations = checks.count("max_iterations", max_iterations)

    def _fit(self, data):
        best = temperature.best_temperature(data)
        # Threads of BLAS that wait for each other on a busy machine took 51
        # seconds for a fit of 5,000 x 100 logits, which takes 3 with one.
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            self._fit_to(*data.whole(), best)

    def _transform(self, logits):
        scale = self.scale_.reshape(len(self.bias_), -1)
        parameters = np.hstack([scale, self.bias_[:, None]])
        return apply(parameters, self._inputs(logits).T).T

    def _inputs(self, logits):
        return log_softmax(logits, axis=1) if self.log_probabilities else logits

    def _fit_all(self, problem, start, strength):
        """Sets scale and bias to the parameters of the given strength."""
        parameters, converged = problem.fit(
            start, strength, self.max_iterations
        )
        if not converged:
            checks.warn(
                f"The fit did not converge in {self.max_iterations} "
                "iterations. Set `max_iterations` to a larger number, or a "
                "larger penalty.",
                ConvergenceWarning,
            )
        scale = parameters[:, :-1].copy()
        self.scale_ = scale if self.kind == "matrix" else scale[:, 0]
        self.bias_ = parameters[:, -1].copy()

    def _identity(self, num_classes):
        """The parameters of the identity map."""
        scale = np.ones((num_classes, 1))
        if self.kind == "matrix":
            scale = np.eye(num_classes)
        return np.hstack([scale, np.zeros((num_classes, 1))])

    def _warn_of_harm(self, validation, losses):
        """Warns if held-out losses are clearly above those of the start."""
        plain, weights = validation.start_losses, validation.weights
        # By two standard errors, and by an amount that matters: the start has
        # seen the held-out examples.
        worse = losses - (1.0 + HARM) * plain
        if is_clear(worse, weights, errors=2.0):
            checks.warn(
                f"{type(self).__name__} has a cross-validated NLL of "
                f"{np.average(losses, weights=weights):.4g}, more than the "
                f"{np.average(plain, weights=weights):.4g} of temperature "
                "scaling: these data are too few for it. Use "
                "`TemperatureScaling`."
            )

    def _layer(self, **options):
        layer = layers.Affine(
            len(self.bias_),
            self.kind,
            self.log_probabilities,
            name=f"{self.kind}_calibration",
            **self._layer_options(),
            **options,
        )
        layer.set_weights([self.scale_, self.bias_])
        return layer

    def _layer_options(self):
        """Options of `layers.Affine` that a fit has found."""
        return {}

    def _check_fitted_values(self):
        shape = (self.num_classes_,)
        for name, expected in (
            ("bias_", shape),
            ("scale_", shape * 2 if self.kind == "matrix" else shape),
        ):
            if np.shape(getattr(self, name)) != expected:
                raise ValueError(
                    f"`{name}` must have the shape {expected}. Received: "
                    f"{name}.shape={np.shape(getattr(self, name))}"
                )


class TemperedCalibrator(AffineCalibrator):
    """An affine map that is regularised towards temperature scaling.

    For logits that are already divided by their temperature, the objective is

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))
    """

    fitted_names = ("scale_", "bias_", "penalty_")

    def __init__(
        self,
        *,
        penalty=None,
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
        if penalty is not None:
            penalty = checks.number("penalty", penalty, low=0, closed=True)
        self.penalty = penalty

    def _fit_to(self, logits, labels, weights, best):
        identity = self._identity(logits.shape[1])
        scale_size = identity[:, :-1].size
        unit = np.full_like(identity, 1.0 / scale_size)
        unit[:, -1] = 1.0 / len(identity)
        problem = Problem(
            logits * logits.dtype.type(1.0 / best), labels, weights, identity
        )
        penalty, start = self.penalty, identity
        if penalty is None:
            path = scale_size * STRENGTHS
            validation = Validation(problem, self.cv, identity)
            index, start, losses = validation.choose([p * unit for p in path])
            self._warn_of_harm(validation, losses)
            penalty = path[index]
        self._fit_all(problem, start, penalty * unit)
        self.scale_ = self.scale_ / best
        self.penalty_ = float(penalty)

    def _check_fitted_values(self):
        super()._check_fitted_values()
        checks.number("penalty_", self.penalty_, low=0, closed=True)


class VectorScaling(TemperedCalibrator):
    """Scales and shifts the logit of each class: `logits * scale + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - 1)^2) + mean(bias^2))

    so that with few data it falls back to temperature scaling. A penalty of 0
    gives vector scaling as it was published.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of cross-validation folds, 5 by default. For large data, only
            the first folds are held out.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K,)`, including the temperature.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> shifted = logits + [1, 0, 0]
        >>> scaler = ct.posthoc.VectorScaling().fit(shifted, labels)
        >>> float(np.round(scaler.bias_[0] - scaler.bias_[1], 0))
        -2.0

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "vector"


class MatrixScaling(TemperedCalibrator):
    """Applies any affine map to the logits: `logits @ scale.T + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))

    As published, without a penalty, its K^2 parameters overfit all but huge
    data sets. With the penalty, it falls back to temperature scaling.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of cross-validation folds, 5 by default. For large data, only
            the first folds are held out.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K, K)`, including the temperature.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> mixed = logits + 0.5 * logits[:, [1, 2, 0]]
        >>> scaler = ct.posthoc.MatrixScaling().fit(mixed, labels)
        >>> scaler.scale_.shape
        (3, 3)

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "matrix"


class DirichletCalibration(AffineCalibrator):
    """An affine map of the log-probabilities, regularised by ODIR.

    It minimises

        mean NLL + off_diagonal mean(off-diagonal scale^2)
                 + intercept mean(bias^2)

    with outputs `log_softmax(logits) @ scale.T + bias`. A penalty that is not
    given is chosen by cross-validation; if neither is, first both together,
    then that of the intercept alone.

    Args:
        off_diagonal: ODIR's lambda, at least 0, or None.
        intercept: ODIR's mu, at least 0, or None.
        cv: Number of cross-validation folds, 5 by default. For large data, only
            the first folds are held out.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K, K)`.
        bias_: `(K,)`.
        off_diagonal_: Lambda of the fit.
        intercept_: Mu of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> scaler = ct.posthoc.DirichletCalibration(
        ...     off_diagonal=0.1, intercept=0.1
        ... ).fit(3 * logits, labels)
        >>> scaler.scale_.shape
        (3, 3)

    Reference:
        Kull et al., "Beyond temperature scaling: Obtaining well-calibrated
        multiclass probabilities with Dirichlet calibration", 2019.
    """

    kind = "matrix"
    log_probabilities = True
    fitted_names = ("scale_", "bias_", "off_diagonal_", "intercept_")

    def __init__(
        self,
        *,
        off_diagonal=None,
        intercept=None,
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
        if off_diagonal is not None:
            off_diagonal = checks.number(
                "off_diagonal", off_diagonal, low=0, closed=True
            )
        if intercept is not None:
            intercept = checks.number(
                "intercept", intercept, low=0, closed=True
            )
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _fit_to(self, logits, labels, weights, best):
        num_classes = logits.shape[1]
        start = self._identity(num_classes) / best
        problem = Problem(
            self._inputs(logits), labels, weights, np.zeros_like(start)
        )
        offs = num_classes * (num_classes - 1) * STRENGTHS
        intercepts = num_classes * STRENGTHS
        if self.off_diagonal is not None:
            offs = np.full_like(offs, self.off_diagonal)
        if self.intercept is not None:
            intercepts = np.full_like(intercepts, self.intercept)
        penalties = offs[0], intercepts[0]
        if None in (self.off_diagonal, self.intercept):
            validation = Validation(problem, self.cv, start)
            penalties, start = self._choose(validation, offs, intercepts)
        self._fit_all(problem, start, odir_strength(num_classes, *penalties))
        self.off_diagonal_, self.intercept_ = map(float, penalties)

    def _choose(self, validation, offs, intercepts):
        """Both penalties together, and then that of the intercept alone."""
        paths = [list(zip(offs, intercepts, strict=True))]
        best, chosen = math.inf, None
        for path in paths:
            strengths = [odir_strength(len(validation.start), *p) for p in path]
            index, start, losses = validation.choose(strengths)
            value = np.average(losses, weights=validation.weights)
            if value < best:
                best, chosen = value, (path[index], start, losses)
            if len(paths) == 1 and self.off_diagonal is self.intercept is None:
                paths.append([(chosen[0][0], mu) for mu in intercepts])
        self._warn_of_harm(validation, chosen[2])
        return chosen[:2]

    def _check_fitted_values(self):
        super()._check_fitted_values()
        for name in ("off_diagonal_", "intercept_"):
            checks.number(name, getattr(self, name), low=0, closed=True)


class StructuredCalibrator(AffineCalibrator):
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

    def _fit_to(self, logits, labels, weights, best):
        identity = self._identity(logits.shape[1])
        unit = structured_penalty(identity, 1.0 / np.sum(weights**2))
        strength = self.strength
        self.temperature_ = best
        self.centred_ = self.centred
        if self.centred is None:
            self.centred_ = strength != "cv"
        self.centred_ = int(self.centred_)
        problem = Problem(self._inputs(logits), labels, weights, identity)
        start = identity
        if strength == "cv":
            validation = Validation(problem, self.cv, identity, MOST_FOLDS)
            strength, start, losses = choose_strength(validation, unit)
            self._warn_of_harm(validation, losses)
        self._fit_all(problem, start, strength * unit)
        self.strength_ = float(strength)

    def _inputs(self, logits):
        """Log-probabilities at the temperature, optionally centred."""
        scaled = logits * logits.dtype.type(1.0 / self.temperature_)
        logs = log_softmax(scaled, axis=1)
        if self.centred_:
            logs -= logs.mean(axis=1, keepdims=True)
        return logs

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
        cv: Number of cross-validation folds, 5 by default. At most three of
            them are held out, and fewer for large data.
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


class Problem:
    """The objective on some examples.

    Args:
        inputs: Inputs `(n, K)`; kept as `(K, n)`, whose reductions over classes
            are fast for few classes too.
        labels: Class ids `(n,)`.
        weights: Weights `(n,)`.
        centre: Parameters where the penalty is 0, `(K, m)`.
    """

    def __init__(self, inputs, labels, weights, centre):
        self.inputs = np.ascontiguousarray(inputs.T)
        self.labels = labels
        self.mass = weights.sum()
        self.weights = weights / self.mass
        self.centre = centre

    def take(self, rows, dtype):
        """The objective on some of the examples."""
        return Problem(
            self.inputs[:, rows].T.astype(dtype),
            self.labels[rows],
            self.weights[rows],
            self.centre,
        )

    def losses(self, parameters):
        """The negative log-likelihood of each example."""
        return self._losses(parameters)[0]

    def _losses(self, parameters):
        """Losses `(n,)`, probabilities `(K, n)` and where the labels are."""
        chosen = self.labels, np.arange(len(self.labels))
        outputs = apply(parameters, self.inputs)
        outputs -= outputs.max(axis=0)
        of_label = outputs[chosen].astype(np.float64)
        np.exp(outputs, out=outputs)
        totals = outputs.sum(axis=0)
        outputs /= totals
        return np.log(totals, dtype=np.float64) - of_label, outputs, chosen

    def value_and_gradient(self, parameters, strength):
        """The penalised objective and its gradient `(K, m)`."""
        losses, excess, chosen = self._losses(parameters)
        excess[chosen] -= 1.0
        excess *= self.weights.astype(excess.dtype)
        gradient = np.empty_like(parameters)
        if parameters.shape[1] > 2:
            gradient[:, :-1] = excess @ self.inputs.T
        else:
            gradient[:, 0] = np.einsum("kn,kn->k", excess, self.inputs)
        gradient[:, -1] = excess.sum(axis=1)
        change = parameters - self.centre
        value = self.weights @ losses + np.sum(strength * change**2)
        return value, gradient + 2 * strength * change

    def fit(self, start, strength, max_iterations, tolerance=None):
        """The best parameters, and whether there were enough iterations."""
        if tolerance is None:
            is_double = self.inputs.dtype == np.float64
            tolerance = 1e-12 if is_double else 1e-7

        def objective(flat):
            value, gradient = self.value_and_gradient(
                flat.reshape(start.shape), strength
            )
            return value, gradient.ravel()

        found = minimize(
            objective,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": max_iterations,
                "maxfun": 10 * max_iterations,
                "ftol": tolerance,
                "gtol": 1e-7,
            },
        )
        # A line search that ends in rounding (status 2) is at the optimum.
        return found.x.reshape(start.shape), found.status != 1


class Validation:
    """Held-out losses of fits with several strengths of the penalty.

    Fits are in float32, start where those with the last strength ended, and end
    early.

    Args:
        problem: A `Problem`.
        cv: Number of folds, or None.
        start: Parameters where the first fits start: temperature scaling.
        most_folds: Number of folds that are held out at most.
    """

    def __init__(self, problem, cv, start, most_folds=math.inf):
        self.start = start
        count = len(problem.labels)
        used = min(
            max(int(LARGEST_FOLDS / (count * start.size)), 1), most_folds
        )
        self.pairs = []
        if count > 1:
            num_folds = min(cv or FOLDS, count)
            self.pairs = [
                (problem.take(rest, np.float32), problem.take(fold, np.float32))
                for rest, fold in base.folds(problem.labels, num_folds)
            ][: min(used, num_folds)]
        self.weights = np.concatenate(
            [fold.mass * fold.weights for _, fold in self.pairs] or [np.ones(1)]
        )
        self.starts = [start] * len(self.pairs)
        self.start_losses = self._held_out()

    def _held_out(self):
        if not self.pairs:
            return np.zeros(1)
        return np.concatenate(
            [
                fold.losses(parameters)
                for (_, fold), parameters in zip(
                    self.pairs, self.starts, strict=True
                )
            ]
        )

    def losses(self, strength):
        """The loss of each held-out example, with this strength."""
        self.starts = [
            rest.fit(start, strength, CV_ITERATIONS, CV_TOLERANCE)[0]
            for (rest, _), start in zip(self.pairs, self.starts, strict=True)
        ]
        return self._held_out()

    def middle(self):
        """The mean of the last fits, close to the fit to all examples."""
        return np.mean(self.starts or [self.start], axis=0)

    def choose(self, strengths):
        """Finds the strength of the smallest held-out loss.

        Args:
            strengths: Arrays `(K, m)`, the strongest first.

        Returns:
            The index of the best strength, a start for the fit to all examples,
            and the held-out losses.
        """
        self.starts = [self.start] * len(self.pairs)
        best, lowest, worse = (0, self.start, self.start_losses), math.inf, 0
        for index, strength in enumerate(strengths if self.pairs else ()):
            losses = self.losses(strength)
            value = np.average(losses, weights=self.weights)
            if value < lowest:
                best, lowest, worse = (index, self.middle(), losses), value, 0
                continue
            worse += 1
            if worse == PATIENCE or value > CLEARLY_WORSE * lowest:
                break
        return best


def choose_strength(validation, unit):
    """Searches the strength of structured scaling, from 1 on.

    Weaker penalties are tried first, then stronger ones. A step is taken if it
    lowers the held-out negative log-likelihood by more than one standard error:
    on few examples, the smallest one is chosen by chance, and is often much too
    weak.

    Args:
        validation: A `Validation`.
        unit: The penalty of strength 1, in the shape of the parameters.

    Returns:
        The strength, a start for the fit to all examples, and the losses.
    """
    if not validation.pairs:
        return 1.0, validation.start, validation.start_losses
    best, losses = 0, validation.losses(unit)
    start = validation.middle()
    for direction in (-1, 1):
        while WEAKEST <= best + direction <= STRONGEST:
            other = validation.losses(STEP ** (best + direction) * unit)
            if not is_clear(losses - other, validation.weights):
                break
            best, losses, start = best + direction, other, validation.middle()
        if best != 0:
            break
    return STEP**best, start, losses


def is_clear(decrease, weights, errors=1.0):
    """Whether a weighted mean is larger than this many standard errors."""
    weights = weights / weights.sum()
    mean = weights @ decrease
    error = np.sqrt(np.sum((weights * (decrease - mean)) ** 2))
    return mean > errors * error


def apply(parameters, inputs):
    """The affine map of inputs `(K, n)`, in their precision."""
    scale = parameters[:, :-1].astype(inputs.dtype)
    outputs = scale @ inputs if scale.shape[1] > 1 else scale * inputs
    outputs += parameters[:, -1:].astype(inputs.dtype)
    return outputs


def odir_strength(num_classes, off_diagonal, intercept):
    """The strength of ODIR for each parameter, `(K, K + 1)`."""
    each = off_diagonal / (num_classes * (num_classes - 1))
    strength = np.full((num_classes, num_classes + 1), each)
    np.fill_diagonal(strength, 0.0)
    strength[:, -1] = intercept / num_classes
    return strength


def structured_penalty(identity, count):
    """The penalty of strength 1 for each parameter, in the identity's shape."""
    num_classes = len(identity)
    penalty = np.full_like(identity, num_classes / count)
    if identity.shape[1] > 2:
        off_diagonal = ~np.eye(*identity.shape, dtype=bool)
        off_diagonal[:, -1] = False
        penalty[off_diagonal] *= num_classes - 1
    return penalty
