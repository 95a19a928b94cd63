"""Affine maps of logits or log-probabilities, fitted with a penalty.

Parameters are an array `(K, m)` whose last column is the bias; the others are a
matrix (m = K + 1) or the vector that the inputs are multiplied by (m = 2).
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning

from caltrain_tf import checks, layers
from caltrain_tf.posthoc import base, temperature

# Strengths that cross-validation tries: for each parameter in the mean of the
# penalty, and of structured scaling. The strongest ones leave the parameters
# where they start.
STRENGTHS = 10.0 ** np.arange(1, -7, -1)
STRUCTURED_STRENGTHS = 4.0 ** np.arange(2, -6, -1)
# The path of strengths ends when this many in a row were no better.
PATIENCE = 2
# All of five folds are held out, or only the first ones where all of
# them would have more parameters x rows than this.
FOLDS, LARGEST = 5, 1.2e8
# Fits of cross-validation end far below the standard error of a held-out loss.
ITERATIONS, CV_ITERATIONS, CV_TOLERANCE = 1000, 30, 1e-5
# Where fits to float32 end. Held-out losses of CIFAR-100 are not lower at 1e-7.
SINGLE_TOLERANCE = 3e-6
# Smaller log-probabilities are those of masked classes, with logits such as
# -1e30. A matrix cannot be fitted to these.
LOWEST = -50.0
# Share by which a held-out loss above that of temperature scaling is harm.
HARM = 0.02


class AffineCalibrator(base.Calibrator):
    """`inputs @ scale_.T + bias_`, or `inputs * scale_ + bias_`.

    A subclass defines `_fit_to`, and may define `_inputs`.
    """

    kind = None
    log_probabilities = False

    def _fit(self, *arrays):
        self._fit_to(*arrays, temperature.best_temperature(*arrays))

    def _inputs(self, logits):
        return log_softmax(logits, axis=1) if self.log_probabilities else logits

    def _identity(self, num_classes):
        """The parameters of the identity map."""
        bias = np.zeros((num_classes, 1))
        is_matrix = self.kind == "matrix"
        return np.hstack([np.eye(num_classes) if is_matrix else bias + 1, bias])

    def _solve(self, problem, start, strengths):
        """Sets scale and bias, and returns the index of the strength."""
        index = 0
        if len(strengths) > 1 and len(problem.labels) > 1:
            index, start = self._cross_validate(problem, start, strengths)
        parameters, converged = problem.fit(start, strengths[index], ITERATIONS)
        if not converged:
            checks.warn(
                f"The fit did not converge in {ITERATIONS} iterations. Set a "
                "larger penalty.",
                ConvergenceWarning,
            )
        self.scale_, self.bias_ = parameters[:, :-1], parameters[:, -1]
        if self.kind == "vector":
            self.scale_ = self.scale_[:, 0]
        return index

    def _cross_validate(self, problem, start, strengths):
        """The index of the best strength, and a start for the last fit."""
        count = len(problem.labels)
        folds = base.folds(problem.labels, min(FOLDS, count))
        folds = folds[: max(int(LARGEST / (count * start.size)), 1)]
        pairs = [[problem.take(rows) for rows in pair] for pair in folds]
        weights = np.concatenate([problem.weights[fold] for _, fold in folds])
        weights /= weights.sum()

        def held_out(parameters):
            parts = zip(pairs, parameters, strict=True)
            return np.concatenate([fold.losses(p)[0] for (_, fold), p in parts])

        parameters, best = [start] * len(pairs), None
        plain = held_out(parameters)
        for index, strength in enumerate(strengths):
            parameters = [
                rest.fit(each, strength, CV_ITERATIONS, CV_TOLERANCE)[0]
                for (rest, _), each in zip(pairs, parameters, strict=True)
            ]
            losses = held_out(parameters)
            # On few examples, the smallest held-out loss is often that of a
            # penalty that is much too weak.
            if best is None or is_clear(best[2] - losses, weights, 1.0):
                best = index, np.mean(parameters, axis=0), losses
            elif index - best[0] == PATIENCE:
                break
        index, start, losses = best
        # By two standard errors, and by an amount that matters: temperature
        # scaling has seen the held-out examples.
        if is_clear(losses - (1.0 + HARM) * plain, weights, 2.0):
            checks.warn(
                f"{type(self).__name__} has a cross-validated NLL of "
                f"{weights @ losses:.4g}, more than the {weights @ plain:.4g} "
                "of temperature scaling: these data are too few for it. Use "
                "`TemperatureScaling`."
            )
        return index, start

    def _transform(self, logits):
        scale = self.scale_.reshape(len(self.bias_), -1)
        parameters = np.hstack([scale, self.bias_[:, None]])
        return apply(parameters, self._inputs(logits).T).T

    def _layer(self, **options):
        options["name"] = f"{self.kind}_calibration"
        layer = layers.Affine(
            len(self.bias_), self.kind, self.log_probabilities, **options
        )
        layer.set_weights([self.scale_, self.bias_])
        return layer


class VectorScaling(AffineCalibrator):
    """Scales and shifts the logit of each class: `logits * scale + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - 1)^2) + mean(bias^2))

    so that with few data it falls back to temperature scaling. The published
    method has a penalty of 0.

    Args:
        penalty: A number >= 0; chosen by five-fold cross-validation if None.
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        scale_: `(K,)`, including the temperature.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]] * 20
        >>> labels = [0, 1, 0, 2] * 10  # The second is right by half.
        >>> scaler = ct.posthoc.VectorScaling().fit(logits, labels)
        >>> scaler.predict_proba(logits[:2]).round(1).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "vector"
    fitted_names = ("scale_", "bias_", "penalty_")

    def __init__(
        self,
        *,
        penalty=None,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_probs, multi_label, ignore_class)
        self.penalty = base.number_or_none("penalty", penalty)

    def _fit_to(self, logits, labels, weights, best):
        identity = self._identity(logits.shape[1])
        size = identity[:, :-1].size
        unit = of_each(identity, 1 / size, 1 / size, 1 / len(identity))
        path = [self.penalty] if self.penalty is not None else size * STRENGTHS
        scaled = logits * logits.dtype.type(1.0 / best)
        problem = Problem(scaled, labels, weights, identity)
        index = self._solve(problem, identity, [p * unit for p in path])
        self.scale_ = self.scale_ / best
        self.penalty_ = float(path[index])


class MatrixScaling(VectorScaling):
    """Applies any affine map to the logits: `logits @ scale.T + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))

    Without a penalty, as published, it overfits all but huge data sets.
    Arguments and attributes are those of `VectorScaling`; `scale_` is `(K, K)`.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]] * 20
        >>> labels = [0, 1, 0, 2] * 10  # The second is right by half.
        >>> scaler = ct.posthoc.MatrixScaling().fit(logits, labels)
        >>> scaler.predict_proba(logits[:2]).round(1).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "matrix"


class DirichletCalibration(AffineCalibrator):
    """An affine map of the log-probabilities, regularised by ODIR.

    With outputs `log_softmax(logits) @ scale.T + bias`, it minimises

        mean NLL + off_diagonal mean(off-diagonal scale^2)
                 + intercept mean(bias^2)

    Args:
        off_diagonal, intercept: ODIR's lambda and mu, both >= 0; chosen by
            cross-validation, together, if None.
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        scale_: `(K, K)`.
        bias_: `(K,)`.
        off_diagonal_, intercept_: Lambda and mu of the fit.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]] * 20
        >>> labels = [0, 1, 0, 2] * 10  # The second is right by half.
        >>> scaler = ct.posthoc.DirichletCalibration().fit(logits, labels)
        >>> scaler.predict_proba(logits[:2]).round(1).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]

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
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_probs, multi_label, ignore_class)
        self.off_diagonal = base.number_or_none("off_diagonal", off_diagonal)
        self.intercept = base.number_or_none("intercept", intercept)

    def _fit_to(self, logits, labels, weights, best):
        start = self._identity(logits.shape[1]) / best
        sizes = len(start) * (len(start) - 1), len(start)
        # Pairs of lambda and mu.
        path = np.outer(STRENGTHS, sizes)
        for column, number in enumerate((self.off_diagonal, self.intercept)):
            if number is not None:
                path[:, column] = number
        path = np.unique(path, axis=0)[::-1]
        strengths = [of_each(start, 0.0, *each) for each in path / sizes]
        centre = np.zeros_like(start)
        problem = Problem(self._inputs(logits), labels, weights, centre)
        index = self._solve(problem, start, strengths)
        self.off_diagonal_, self.intercept_ = path[index].tolist()


class StructuredVectorScaling(AffineCalibrator):
    """Scales and shifts the log-probability of each class (SVS).

    Temperature scaling is fitted first, to N examples of K classes. Then, with
    the tempered log-probabilities z, the fit minimises

        mean NLL of softmax(scale * z + bias)
            + strength K / N (|scale - 1|^2 + |bias|^2)

    Values of z below -50, such as those of masked classes, are raised to it.
    The authors choose a strength of 1 and centre z over the classes. By
    default, cross-validation chooses it from 16 down to 1/1024; a weaker
    penalty must be better by more than one standard error. Then z is not
    centred, which lets the scale correct the confidence of each class.

    Args:
        strength: A number >= 0, or `"cv"` for cross-validation.
        centred: Whether to centre z over the classes. By default True for a
            given strength, and False with cross-validation.
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        scale_, bias_: `(K,)`.
        temperature_: That of temperature scaling.
        strength_: The strength of the fit.
        centred_: 1 if z was centred, else 0.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]] * 20
        >>> labels = [0, 1, 0, 2] * 10  # The second is right by half.
        >>> scaler = ct.posthoc.StructuredVectorScaling().fit(logits, labels)
        >>> scaler.predict_proba(logits[:2]).round(1).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]

    Reference:
        Berta et al., "Structured Matrix Scaling for Multi-Class Calibration",
        2026.
    """

    kind = "vector"
    log_probabilities = True
    fitted_names = ("scale_", "bias_", "temperature_", "strength_", "centred_")

    def __init__(
        self,
        *,
        strength="cv",
        centred=None,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_probs, multi_label, ignore_class)
        if not (isinstance(strength, str) and strength == "cv"):
            strength = checks.number("strength", strength, low=0, closed=True)
        self.strength = strength
        if centred is not None:
            centred = checks.flag("centred", centred)
        self.centred = centred

    def _fit_to(self, logits, labels, weights, best):
        identity = self._identity(logits.shape[1])
        # K / N, with the effective number of examples.
        share = len(identity) * np.sum(weights**2)
        unit = of_each(identity, share, (len(identity) - 1) * share, share)
        chooses = self.strength == "cv"
        path = STRUCTURED_STRENGTHS if chooses else [self.strength]
        centred = not chooses if self.centred is None else self.centred
        self.temperature_, self.centred_ = best, int(centred)
        problem = Problem(self._inputs(logits), labels, weights, identity)
        index = self._solve(problem, identity, [s * unit for s in path])
        self.strength_ = float(path[index])

    def _inputs(self, logits):
        """Log-probabilities at the temperature, optionally centred."""
        scaled = logits * logits.dtype.type(1.0 / self.temperature_)
        logs = np.maximum(log_softmax(scaled, axis=1), LOWEST)
        if self.centred_:
            logs -= logs.mean(axis=1, keepdims=True)
        return logs

    def _layer(self, **options):
        options |= {"temperature": self.temperature_, "lowest": LOWEST}
        return super()._layer(centred=self.centred_, **options)


class StructuredMatrixScaling(StructuredVectorScaling):
    """Any affine map of the log-probabilities, with a structured penalty (SMS).

    As `StructuredVectorScaling`, whose arguments and attributes it has, but
    `scale_` is `(K, K)`, and the fit minimises

        mean NLL of softmax(scale @ z + bias)
            + strength K / N (|diagonal - 1|^2 + |bias|^2)
            + strength K (K - 1) / N |off-diagonal|^2

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]] * 20
        >>> labels = [0, 1, 0, 2] * 10  # The second is right by half.
        >>> scaler = ct.posthoc.StructuredMatrixScaling().fit(logits, labels)
        >>> scaler.predict_proba(logits[:2]).round(1).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]

    Reference:
        Berta et al., "Structured Matrix Scaling for Multi-Class Calibration",
        2026.
    """

    kind = "matrix"


class Problem:
    """mean NLL(outputs) + sum(strength (parameters - centre)^2)."""

    def __init__(self, inputs, labels, weights, centre):
        # `(K, n)`: sums over few classes are twice as fast.
        self.inputs = np.ascontiguousarray(inputs.T)
        self.labels, self.centre = labels, centre
        self.weights = weights / weights.sum()

    def take(self, rows):
        """The objective on some of the examples, in float32."""
        inputs = self.inputs.T[rows].astype(np.float32)
        labels, weights = self.labels[rows], self.weights[rows]
        return Problem(inputs, labels, weights, self.centre)

    def losses(self, parameters):
        """Losses `(n,)`, and probabilities minus one-hot labels `(K, n)`."""
        of_label = self.labels, np.arange(len(self.labels))
        logs = log_softmax(apply(parameters, self.inputs), axis=0)
        excess = np.exp(logs)
        excess[of_label] -= 1.0
        return -logs[of_label].astype(np.float64), excess

    def value_and_gradient(self, parameters, strength):
        """The penalised objective and its gradient, for flat parameters."""
        parameters = parameters.reshape(self.centre.shape)
        # Of steps too far, which the line search takes back.
        with np.errstate(over="ignore", invalid="ignore"):
            losses, excess = self.losses(parameters)
        excess *= self.weights.astype(excess.dtype)
        gradient = np.empty_like(parameters)
        if parameters.shape[1] > 2:
            gradient[:, :-1] = excess @ self.inputs.T
        else:
            gradient[:, 0] = np.sum(excess * self.inputs, axis=1)
        gradient[:, -1] = excess.sum(axis=1)
        change = parameters - self.centre
        gradient += 2 * strength * change
        value = self.weights @ losses + np.sum(strength * change**2)
        return value, gradient.ravel()

    def fit(self, start, strength, max_iterations, tolerance=None):
        """The best parameters, and whether there were enough iterations."""
        if tolerance is None:
            is_double = self.inputs.dtype == np.float64
            tolerance = 1e-12 if is_double else SINGLE_TOLERANCE
        options = {"maxiter": max_iterations, "maxfun": 10 * max_iterations}
        found = minimize(
            self.value_and_gradient,
            start.ravel(),
            (strength,),
            jac=True,
            method="L-BFGS-B",
            options={**options, "ftol": tolerance, "gtol": 1e-7},
        )
        # A line search that ends in rounding (status 2) is at the optimum.
        return found.x.reshape(start.shape), found.status != 1


def apply(parameters, inputs):
    """The affine map of inputs `(K, n)`, in their precision."""
    parameters = parameters.astype(inputs.dtype)
    scale, bias = parameters[:, :-1], parameters[:, -1:]
    return (scale @ inputs if scale.shape[1] > 1 else scale * inputs) + bias


def of_each(identity, diagonal, off_diagonal, bias):
    """The strength for each parameter, in the shape of the identity."""
    strength = np.where(identity != 0, diagonal, off_diagonal)
    strength[:, -1] = bias
    return strength


def is_clear(decrease, weights, errors):
    """Whether a mean, with weights of sum 1, is that many standard errors."""
    mean = weights @ decrease
    return mean > errors * np.linalg.norm(weights * (decrease - mean))
