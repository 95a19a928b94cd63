"""Vector and matrix scaling: affine maps of the logits with a penalty.

    mean NLL(outputs) + sum(strength * (parameters - centre)^2)

Parameters are an array `(K, m)` whose last column is the bias: with m = K + 1
the outputs are `inputs @ parameters[:, :-1].T + bias`, and with m = 2 they are
`inputs * parameters[:, 0] + bias`. L-BFGS-B minimises this objective, in
coordinates in which it is well conditioned (`whitening`). The strength is
chosen by cross-validation (`choose`), in which each fit starts where the fit
with the next stronger penalty ended.
"""

import contextlib
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from caltrain_tf import layers
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_number
from caltrain_tf.checks import warn
from caltrain_tf.metrics.inputs import available_cores
from caltrain_tf.posthoc.base import Calibrator
from caltrain_tf.posthoc.temperature import most_likely
from caltrain_tf.posthoc.temperature import row_max
from caltrain_tf.posthoc.temperature import survey
from caltrain_tf.posthoc.temperature import total

# Strengths that cross-validation tries, for each parameter in the mean of the
# penalty. The strongest ones leave the parameters where they start.
STRENGTHS = 10.0 ** np.arange(1, -7, -1)
# A path of strengths ends when this many in a row were no better, or one was
# worse by this factor.
PATIENCE, CLEARLY_WORSE = 2, 1.02
# Parameters x rows x folds that cross-validation may take; where all folds
# would take more, only the first ones are held out.
LARGEST_FOLDS = 1.2e8
# Relative decrease of the objective at which a fit ends, by its precision.
TOLERANCES = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-7}
# After these few steps from the fit with the next stronger penalty, the
# likelihood of held-out rows still changes in the third digit at most.
CV_ITERATIONS, CV_TOLERANCE = 10, 1e-6
# Parameters x classes below which threads do not speed up matrix products.
SMALL_PRODUCT = 1e7
# Number that is added to the diagonal of a curvature, relative to its mean.
RIDGE = 1e-6
SMALLEST_CURVATURE = 1e-12
# Up to this many classes, each has a curvature of its own.
MANY_CLASSES = 32
# Rows per parameter and block from which a curvature is computed.
CURVATURE_ROWS = 16


class AffineCalibrator(Calibrator):
    """`inputs @ scale_.T + bias_`, or `inputs * scale_ + bias_`.

    A subclass defines the inputs and `_fit`.
    """

    kind = None
    log_probabilities = False

    def __init__(self, *, cv, max_iterations, **options):
        super().__init__(**options)
        self.cv = check_count("cv", cv, low=2)
        self.max_iterations = check_count("max_iterations", max_iterations)

    def _transform(self, logits):
        scale = self.scale_.reshape(len(self.bias_), -1)
        parameters = np.hstack([scale, self.bias_[:, None]])
        return apply(parameters, self._inputs(logits))

    def _inputs(self, logits):
        return log_softmax(logits, axis=1) if self.log_probabilities else logits

    def _fit_all(self, rows, inputs, start, centre, strength):
        """Fits the scale and bias to all rows."""
        with one_thread(start.size * rows.num_classes < SMALL_PRODUCT):
            parameters = fit(
                rows.changed(inputs),
                start,
                centre,
                strength,
                self.max_iterations,
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

    def _expected_classes(self):
        return len(self.bias_)

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
        cv=5,
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
            penalty = check_number("penalty", penalty, low=0, closed=True)
        self.penalty = penalty

    def _fit(self, rows):
        view = survey(rows)
        inverse = most_likely(rows, view)
        identity = self._identity(rows.num_classes)
        scale_size = identity[:, :-1].size
        unit = np.full_like(identity, 1.0 / scale_size)
        unit[:, -1] = 1.0 / rows.num_classes

        def inputs(logits):
            return logits * logits.dtype.type(inverse)

        penalty, start = self.penalty, identity
        if penalty is None:
            path = scale_size * STRENGTHS
            strengths = [value * unit for value in path]
            best, _, start = choose(
                rows, view.count, self, inputs, identity, identity, strengths
            )
            penalty = path[best]
        self._fit_all(rows, inputs, start, identity, penalty * unit)
        self.scale_ = self.scale_ * inverse
        self.penalty_ = float(penalty)

    def _check_fitted_values(self):
        super()._check_fitted_values()
        check_number("penalty_", self.penalty_, low=0, closed=True)


class VectorScaling(TemperedCalibrator):
    """Scales and shifts the logit of each class: `logits * scale + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - 1)^2) + mean(bias^2))

    so that with few data it falls back to temperature scaling. A penalty of 0
    gives vector scaling as it was published.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of cross-validation folds. For large data, only the first
            folds are held out.
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
        cv: Number of cross-validation folds. For large data, only the first
            folds are held out.
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


def choose(rows, count, calibrator, inputs, start, centre, strengths):
    """Finds the strength of the smallest held-out negative log-likelihood.

    Args:
        rows: `Rows` or a `Stream`.
        count: Number of rows.
        calibrator: Calibrator whose `cv` is used.
        inputs: Function of logits.
        start: Parameters where the fit with the strongest penalty starts; each
            of the others starts where the one before it ended.
        centre: Parameters where the penalty is 0.
        strengths: Arrays `(K, m)`, the strongest first.

    Returns:
        The index of the best strength, its negative log-likelihood, and the
        parameters of its first fold, as a start for the fit to all rows.
    """
    folds = make_folds(rows, count, calibrator, inputs, start.size)
    if not folds:
        return 0, math.inf, start

    def fit_fold(fold, origin, strength):
        training, held_out = fold
        fitted = fit(training, origin, centre, strength)
        return likelihood(held_out, fitted), fitted

    starts = [start] * len(folds)
    best, best_value, best_start, worse = 0, math.inf, start, 0
    with pool_for(folds, start) as pool:
        for index, strength in enumerate(strengths):
            fits = pool.map(fit_fold, folds, starts, [strength] * len(folds))
            values, starts = zip(*fits, strict=True)
            value = float(np.mean(values))
            if value < best_value:
                best, best_value, best_start, worse = index, value, starts[0], 0
            else:
                worse += 1
                if worse == PATIENCE or value > CLEARLY_WORSE * best_value:
                    break
    return best, best_value, best_start


def make_folds(rows, count, calibrator, inputs, size):
    """Pairs of training and held-out rows in float32, none of a single row.

    Args:
        rows: `Rows` or a `Stream`.
        count: Number of rows.
        calibrator: Calibrator whose `cv` is used.
        inputs: Function of logits.
        size: Number of parameters; if the data are large, only the first folds
            are held out.
    """
    num_folds = min(calibrator.cv, int(count))
    if num_folds < 2:
        return []
    used = max(int(LARGEST_FOLDS / (count * size)), 1)

    def low_precision(logits):
        return inputs(logits).astype(np.float32)

    return [
        [part.changed(low_precision) for part in fold]
        for fold in itertools.islice(rows.folds(num_folds), used)
    ]


@contextlib.contextmanager
def pool_for(folds, start):
    """A pool of threads to fit folds in, from parameters of a shape."""
    is_small = start.size * len(start) < SMALL_PRODUCT
    with (
        one_thread(len(folds) > 1 or is_small),
        ThreadPoolExecutor(available_cores()) as pool,
    ):
        yield pool


def one_thread(limit=True):
    """A context in which, if `limit`, BLAS uses one thread.

    For small matrices, its threads wait for each other longer than they work:
    thirty times as long on a busy machine.
    """
    return threadpool_limits(1 if limit else None, user_api="blas")


def fit(rows, start, centre, strength, max_iterations=None):
    """The parameters of the smallest penalised negative log-likelihood.

    Args:
        rows: Rows whose logits are the inputs.
        start: Parameters to start from, `(K, m)`.
        centre: Parameters where the penalty is 0, `(K, m)`.
        strength: Strength of the penalty, `(K, m)`.
        max_iterations: Largest number of iterations of L-BFGS, with a warning
            if they are not enough; by default the few that cross-validation
            needs.

    Returns:
        Parameters `(K, m)`.
    """
    basis = whitening(rows, start, strength)
    tolerance = CV_TOLERANCE
    if max_iterations is not None:
        tolerance = TOLERANCES[next(iter(rows.blocks()))[0].dtype]

    def to_parameters(coordinates):
        return start + _multiply(coordinates.reshape(start.shape), basis)

    def objective(coordinates):
        parameters = to_parameters(coordinates)
        value, gradient = value_and_gradient(rows, parameters)
        change = parameters - centre
        value += np.sum(strength * change**2)
        gradient += 2 * strength * change
        gradient = _multiply(gradient, np.swapaxes(basis, -1, -2))
        return value, gradient.ravel()

    found = minimize(
        objective,
        np.zeros(start.size),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": max_iterations or CV_ITERATIONS,
            "ftol": tolerance,
            "gtol": 1e-8,
        },
    )
    # A line search that fails at the limit of rounding has converged. Since the
    # curvature is about 1, `left` is about the decrease that remains.
    left = found.jac @ found.jac / 2
    is_stuck = found.status == 2 and left > 1e-4 * max(abs(found.fun), 1)
    if max_iterations is not None and (found.status == 1 or is_stuck):
        warn(
            f"The fit did not converge in {found.nit} iterations: "
            f"{found.message}. Set `max_iterations` to a larger number than "
            f"{max_iterations}, or a larger penalty.",
            ConvergenceWarning,
        )
    return to_parameters(found.x)


def apply(parameters, inputs):
    """Applies the affine map."""
    scale = parameters[:, :-1].astype(inputs.dtype)
    bias = parameters[:, -1].astype(inputs.dtype)
    if _is_matrix(parameters):
        outputs = inputs @ scale.T
    else:
        outputs = inputs * scale[:, 0]
    outputs += bias
    return outputs


def likelihood(rows, parameters):
    """The mean negative log-likelihood."""

    def block(inputs, labels, weights):
        losses = losses_of(parameters, inputs, labels)
        return total(np.ones(len(labels)), weights), total(losses, weights)

    mass, value = rows.sum(block)
    return value / mass


def losses_of(parameters, inputs, labels):
    """The negative log-likelihood of each row."""
    return _subtract_labels(apply(parameters, inputs), labels)


def value_and_gradient(rows, parameters):
    """The mean negative log-likelihood and its gradient `(K, m)`."""
    is_matrix = _is_matrix(parameters)

    def block(inputs, labels, weights):
        excess = apply(parameters, inputs)
        losses = _subtract_labels(excess, labels)
        if weights is not None:
            excess *= weights.astype(excess.dtype)[:, None]
        if is_matrix:
            scale = excess.T @ inputs
        else:
            scale = np.einsum("ij,ij->j", excess, inputs)[:, None]
        bias = excess.sum(axis=0, dtype=np.float64)[:, None]
        mass = total(np.ones(len(labels)), weights)
        return mass, total(losses, weights), np.hstack([scale, bias])

    if is_matrix:
        # BLAS uses all cores, and gradients are too large to keep many.
        parts = (block(*part) for part in rows.blocks())
    else:
        parts = rows.map(block)
    mass, value, gradient = 0.0, 0.0, np.zeros_like(parameters)
    for part in parts:
        mass += part[0]
        value += part[1]
        gradient += part[2]
    return value / mass, gradient / mass


def whitening(rows, start, strength):
    """A basis in which the curvature is about 1, `(K, m, m)` or `(m, m)`.

    Inputs are large, far from 0 and alike, which makes the problem badly
    conditioned. The curvature of the mean negative log-likelihood in the
    parameters of class k is E[p_k (1 - p_k) x x^T], where x are the inputs with
    a 1 for the bias. In the basis of its inverse Cholesky factor it is the
    identity. The products of the probabilities of two classes are left out.

    Args:
        rows: Rows whose logits are the inputs.
        start: Parameters, `(K, m)`.
        strength: Strength of the quadratic penalty, `(K, m)`.
    """
    num_classes, size = strength.shape
    if size == 2:
        moments = _moments_of_pairs
    elif num_classes <= MANY_CLASSES:
        moments = _moments_of_classes
    else:
        moments, strength = _moments_of_all, strength.mean(axis=0)
    enough = CURVATURE_ROWS * size * (len(strength) if strength.ndim > 1 else 1)
    mass, curvature = 0.0, 0.0
    for inputs, _, weights in rows.blocks():
        step = max(1, len(inputs) // enough)
        inputs = inputs[::step].astype(np.float64)
        weights = None if weights is None else weights[::step]
        probs = softmax(apply(start, inputs), axis=1)
        each = probs * (1 - probs)
        if weights is not None:
            each *= weights[:, None]
        curvature = curvature + moments(inputs, each)
        mass += total(np.ones(len(inputs)), weights)
    curvature /= mass
    diagonal = np.arange(size)
    mean = np.mean(curvature[..., diagonal, diagonal], axis=-1, keepdims=True)
    extra = 2 * strength + RIDGE * mean + SMALLEST_CURVATURE
    curvature[..., diagonal, diagonal] += extra
    return np.linalg.inv(np.linalg.cholesky(curvature))


def _moments_of_pairs(inputs, weight):
    """Second moments for a scale and a bias of each class."""
    first = np.einsum("ij,ij->j", weight, inputs)
    second = np.einsum("ij,ij,ij->j", weight, inputs, inputs)
    rows = [[second, first], [first, weight.sum(axis=0)]]
    return np.array(rows).transpose(2, 0, 1)


def _moments_of_classes(inputs, weight):
    """Second moments for a row of the matrix and a bias of each class."""
    inputs = _with_one(inputs)
    return np.stack([(inputs * w[:, None]).T @ inputs for w in weight.T])


def _moments_of_all(inputs, weight):
    """Second moments, averaged over all classes."""
    inputs = _with_one(inputs)
    return (inputs * weight.mean(axis=1)[:, None]).T @ inputs


def _with_one(inputs):
    return np.hstack([inputs, np.ones((len(inputs), 1))])


def _multiply(values, basis):
    """Multiplies rows `(K, m)` by one matrix, or each row by its own."""
    if basis.ndim == 2:
        return values @ basis
    return np.matmul(values[:, None, :], basis)[:, 0]


def _is_matrix(parameters):
    return parameters.shape[1] == len(parameters) + 1


def _subtract_labels(outputs, labels):
    """Turns outputs into softmax - one-hot; returns the NLL of each row."""
    chosen = np.arange(len(labels)), labels
    outputs -= row_max(outputs)[:, None]
    of_label = outputs[chosen].astype(np.float64)
    np.exp(outputs, out=outputs)
    totals = np.einsum("ij->i", outputs)
    outputs /= totals[:, None]
    outputs[chosen] -= 1.0
    return np.log(totals, dtype=np.float64) - of_label
