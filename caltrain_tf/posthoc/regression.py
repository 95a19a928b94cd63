"""Penalised multinomial logistic regression: the fit of all affine maps.

    mean NLL(outputs) + sum(strength * (parameters - centre)^2)

Parameters are an array `(K, m)` whose last column is the bias: with m = K + 1
the outputs are `inputs @ parameters[:, :-1].T + bias`, and with m = 2 they are
`inputs * parameters[:, 0] + bias`.

`fit` minimises this objective by L-BFGS. Inputs are large, far from 0 and
alike, which makes the problem badly conditioned, so L-BFGS starts from the
inverse of a curvature (`measure_curvature`) instead of the identity. A fit then
takes about ten evaluations, and two to five if it starts where the fit with
another strength ended.

SciPy's L-BFGS-B takes no such inverse. It needs several times as many
evaluations, and three to four times as long (`benchmarks/posthoc.py`).

Blocks of inputs have the shape `(n, K)`, and are faster in Fortran order:
NumPy's loops then run along columns of n numbers instead of rows of K.
"""

import contextlib
import functools
import threading
from collections import deque
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from caltrain_tf import checks
from caltrain_tf.posthoc.temperature import total

# Expected decrease of the objective at which a fit ends, by its precision; for
# objectives above 1, relative to them.
TOLERANCES = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-8}
# Number of past steps from which L-BFGS estimates the curvature.
MEMORY = 10
# A step must lower the objective by this share of what the slope promises.
SUFFICIENT = 1e-4
# Steps are not shortened below the second number; and not below the first one
# where the expected decrease is below the third.
SHORT, SHORTEST, CLOSE = 1e-3, 1e-9, 1e-4
# Up to this many parameters of a matrix, the curvature is the whole Hessian.
FEW_PARAMETERS = 128
# Rows per parameter, or per column of a large matrix, from which its curvature
# is measured.
CURVATURE_ROWS = 16
# Number that is added to the diagonal of a curvature, relative to its mean.
RIDGE = 1e-6
SMALLEST_CURVATURE = 1e-12
# Share of the curvature that leaving out a row leaves at least.
LEAST_LEFT = 0.05
# Number of parameters x classes from which BLAS uses all cores.
LARGE_PRODUCT = 1e7


def fit(
    rows,
    start,
    centre,
    strength,
    *,
    max_iterations,
    tolerance=None,
    curvature=None,
):
    """The parameters of the smallest penalised negative log-likelihood.

    Args:
        rows: Rows whose logits are the inputs.
        start: Parameters to start from, `(K, m)`.
        centre: Parameters where the penalty is 0, `(K, m)`.
        strength: Strength of the penalty, `(K, m)`.
        max_iterations: Largest number of iterations of L-BFGS.
        tolerance: Expected decrease of the objective at which the fit ends.
            By default it is as small as the inputs' precision allows, and a fit
            that does not reach it warns.
        curvature: The result of `measure_curvature` at parameters close to the
            optimum; measured at the start by default.

    Returns:
        Parameters `(K, m)`.
    """
    may_warn = tolerance is None
    if tolerance is None:
        tolerance = TOLERANCES[next(iter(rows.blocks()))[0].dtype]

    def objective(parameters):
        value, gradient = value_and_gradient(rows, parameters)
        change = parameters - centre
        value += np.sum(strength * change**2)
        gradient += 2 * strength * change
        return value, gradient

    if curvature is None:
        curvature = measure_curvature(rows, start)
    found, left = minimise(
        objective, start, curvature(2 * strength), max_iterations, tolerance
    )
    if may_warn and left is not None:
        checks.warn(
            f"The fit did not converge in {max_iterations} iterations: the "
            f"objective would still decrease by about {left:.1e}. Set "
            "`max_iterations` to a larger number, or a larger penalty.",
            ConvergenceWarning,
        )
    return found


def minimise(objective, point, solve, max_iterations, tolerance):
    """Minimises a smooth convex function by L-BFGS.

    Args:
        objective: Function from a point to its value and gradient.
        point: Array to start from.
        solve: Function that multiplies a gradient by an estimate of the inverse
            Hessian.
        max_iterations: Largest number of iterations.
        tolerance: Expected decrease of the objective at which to stop.

    Returns:
        The last point, and None or, if the iterations were not enough, the
        decrease that is expected to be left.
    """
    value, gradient = objective(point)
    history, scale = deque(maxlen=MEMORY), 1.0
    for _ in range(max_iterations):
        direction = -_times_inverse(gradient, history, solve, scale)
        slope = np.vdot(gradient, direction)
        # Of a quadratic function, the decrease that is left.
        left = -slope / 2
        if left <= tolerance * max(abs(value), 1.0):
            # So close to the optimum, evaluating the step tells nothing new.
            return point + direction, None
        length = 1.0
        while True:
            step = length * direction
            new_value, new_gradient = objective(point + step)
            if new_value <= value + SUFFICIENT * length * slope:
                break
            if left <= CLOSE * max(abs(value), 1.0):
                # The decrease is lost in rounding.
                if length < SHORT:
                    return point, None
            elif length < SHORTEST:
                return point, left
            # The minimum of the parabola through what is known.
            excess = new_value - value - length * slope
            length *= max(0.1, min(0.5, -slope * length / (2 * excess)))
        change = new_gradient - gradient
        product = np.vdot(step, change)
        if product > 0:
            history.append((step, change, product))
            # How much flatter the function is than `solve` says.
            scale = product / np.vdot(change, solve(change))
        point = point + step
        value, gradient = new_value, new_gradient
    return point, left


def _times_inverse(gradient, history, solve, scale):
    """Multiplies by the inverse Hessian that past steps suggest.

    Args:
        gradient: What to multiply.
        history: Steps, changes of the gradient and their products.
        solve: Multiplies by the estimate of `minimise`.
        scale: Factor of that estimate.
    """
    factors = []
    for step, change, product in reversed(history):
        factors.append(np.vdot(step, gradient) / product)
        gradient = gradient - factors[-1] * change
    result = scale * solve(gradient)
    for step, change, product in history:
        result = result + step * (
            factors.pop() - np.vdot(change, result) / product
        )
    return result


def apply(parameters, inputs):
    """Applies the affine map; the outputs are in Fortran order."""
    scale = parameters[:, :-1].astype(inputs.dtype)
    bias = parameters[:, -1].astype(inputs.dtype)
    if is_matrix(parameters):
        outputs = (scale @ inputs.T).T
    else:
        outputs = inputs * scale[:, 0]
    outputs += bias
    return outputs


def is_matrix(parameters):
    """Whether the parameters are those of a matrix, not of a vector."""
    return parameters.shape[1] == len(parameters) + 1


def losses_of(outputs, labels):
    """Turns outputs into softmax - one-hot; returns the NLL of each row."""
    chosen = np.arange(len(labels)), labels
    of_label = outputs[chosen].astype(np.float64)
    losses = softmax(outputs) - of_label
    outputs[chosen] -= 1.0
    return losses


def softmax(outputs):
    """Turns outputs into their softmax; returns the log of each row's sum."""
    largest = outputs.max(axis=1, keepdims=True)
    outputs -= largest
    np.exp(outputs, out=outputs)
    totals = outputs.sum(axis=1, keepdims=True)
    outputs /= totals
    return np.log(totals[:, 0], dtype=np.float64) + largest[:, 0]


def value_and_gradient(rows, parameters):
    """The mean negative log-likelihood and its gradient `(K, m)`."""

    def block(inputs, labels, weights):
        excess = apply(parameters, inputs)
        losses = losses_of(excess, labels)
        if weights is not None:
            excess *= weights.astype(excess.dtype)[:, None]
        if is_matrix(parameters):
            scale = excess.T @ inputs
        else:
            scale = np.einsum("ij,ij->j", excess, inputs)[:, None]
        bias = excess.sum(axis=0)[:, None]
        mass = total(np.ones(len(labels)), weights)
        return mass, total(losses, weights), np.hstack([scale, bias])

    if is_large(parameters):
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


def measure_curvature(rows, parameters):
    """The curvature of the mean negative log-likelihood.

    With probabilities p and inputs x that end in a 1 for the bias, the
    curvature between the parameters of the classes k and l is

        E[(p_k 1[k = l] - p_k p_l) x x^T]

    All of it is measured for a matrix of few parameters. Otherwise only the
    blocks with k = l count, and those of a large matrix are taken to be
    n_k (S + mean_k mean_k^T), with one covariance S within classes, and a mass
    n_k and a mean for each class.

    Args:
        rows: Rows whose logits are the inputs. For a matrix, some of them are
            enough.
        parameters: Where to measure it, `(K, m)`.

    Returns:
        A function of the curvature `(K, m)` of the penalty. It returns a
        function that multiplies a gradient `(K, m)` by the inverse of the sum
        of both curvatures.
    """
    if not is_matrix(parameters):
        return PairCurvature(*_means(rows, parameters, _pairs))
    moments, inverse, needed = _classes, _with_classes, len(parameters)
    if parameters.size <= FEW_PARAMETERS:
        moments, inverse, needed = _hessian, _with_hessian, parameters.size
    _, *means = _means(rows, parameters, moments, CURVATURE_ROWS * needed)
    return functools.partial(inverse, *means)


def _means(rows, parameters, moments, needed=None):
    """The sum of the weights, and the means of `moments` over rows.

    Args:
        rows: Rows whose logits are the inputs.
        parameters: Parameters `(K, m)`.
        moments: Function of inputs `(K, n)`, probabilities `(K, n)` and weights
            `(n,)` that returns a list of sums over rows.
        needed: Number of rows per block that are enough; by default all.
    """

    def block(inputs, labels, weights):
        step = 1 if needed is None else max(1, len(inputs) // needed)
        inputs = inputs[::step]
        probs = apply(parameters, inputs)
        softmax(probs)
        if weights is None:
            weights = np.ones(len(inputs), inputs.dtype)
        else:
            weights = weights[::step].astype(inputs.dtype)
        return weights.sum(), *moments(inputs.T, probs.T, weights)

    if needed is None:
        parts = rows.map(block)
    else:
        parts = (block(*part) for part in rows.blocks())
    mass, *sums = functools.reduce(
        lambda sums, part: [a + b for a, b in zip(sums, part, strict=True)],
        parts,
    )
    return mass, *(each / mass for each in sums)


class PairCurvature(NamedTuple):
    """The curvature of a vector, a block for the scale and bias of a class."""

    mass: float  # Sum of the weights of the rows.
    blocks: np.ndarray  # `(K, 2, 2)`

    def __call__(self, penalty):
        """As the result of `measure_curvature`."""
        inverse = self._inverse(penalty)
        return lambda values: (inverse @ values[..., None])[..., 0]

    def leverage(self, penalty):
        """The leverage of a row on its own outputs, as coefficients `(K, 3)`.

        At the optimum, Newton's method without a row of weight w and input x of
        class k raises its output by h (p_k - y_k) / (1 - h p_k (1 - p_k)), with
        h = w (a x^2 + b x + c) and its one-hot label y. The coefficients are
        a, b and c.
        """
        inverse = self._inverse(penalty) / self.mass
        return np.stack(
            [inverse[:, 0, 0], 2 * inverse[:, 0, 1], inverse[:, 1, 1]], axis=1
        )

    def _inverse(self, penalty):
        mean = np.trace(self.blocks, axis1=1, axis2=2)[:, None] / 2
        diagonal = penalty + RIDGE * mean + SMALLEST_CURVATURE
        return np.linalg.inv(self.blocks + diagonal[..., None] * np.eye(2))


def _pairs(inputs, probs, weights):
    """The block of each class of a vector, `(K, 2, 2)`."""
    weight = probs * (1 - probs) * weights
    weighted = weight * inputs
    second = np.einsum("ij,ij->i", weighted, inputs)
    first = weighted.sum(axis=1)
    sums = [[second, first], [first, weight.sum(axis=1)]]
    return [np.array(sums, np.float64).transpose(2, 0, 1)]


def _hessian(inputs, probs, weights):
    """The whole curvature of a matrix, `(K m, K m)`."""
    inputs = np.vstack([inputs, np.ones_like(weights)]).astype(np.float64)
    inputs *= np.sqrt(weights)
    weighted = probs[:, None] * inputs
    shape = weighted.shape[:2]
    flat = weighted.reshape(-1, len(weights))
    hessian = -(flat @ flat.T)
    classes = np.arange(len(probs))
    blocks = hessian.reshape(*shape, *shape)
    blocks[classes, :, classes] += weighted @ inputs.T
    return [hessian]


def _with_hessian(hessian, penalty):
    ridge = RIDGE * np.trace(hessian) / len(hessian) + SMALLEST_CURVATURE
    inverse = np.linalg.inv(hessian + np.diag(penalty.ravel() + ridge))
    return lambda values: (inverse @ values.ravel()).reshape(values.shape)


def _classes(inputs, probs, weights):
    """First moments of each class `(K, m)`, second ones of all `(m, m)`."""
    inputs = np.vstack([inputs, np.ones_like(weights)]).astype(np.float64)
    weight = probs * (1 - probs) * weights
    return [weight @ inputs.T, (weight.sum(axis=0) * inputs) @ inputs.T]


def _with_classes(first, second, penalty):
    """Inverts n_k (S + mean_k mean_k^T) + penalty_k for each class k.

    In the basis of the eigenvectors of S, the first term is diagonal, and so is
    the penalty if it is the same for all columns. The mean, and the smaller
    penalty of the matrix's diagonal, each add a matrix of rank one.
    """
    mass = first[:, -1] + SMALLEST_CURVATURE
    means = first / mass[:, None]
    within = (second - first.T @ means) / mass.sum()
    ridge = RIDGE * np.trace(second) / first.size + SMALLEST_CURVATURE
    penalty = penalty + ridge
    usual = np.median(penalty, axis=0)
    scale = 1.0 / np.sqrt(usual)
    values, vectors = np.linalg.eigh(scale[:, None] * within * scale)
    inverse = 1.0 / (mass[:, None] * np.maximum(values, 0.0) + 1.0)
    less = np.maximum(1.0 - np.diagonal(penalty) / usual[:-1], 0.0)
    plus = np.sqrt(mass)[:, None] * ((means * scale) @ vectors)
    minus = np.sqrt(less)[:, None] * vectors[:-1]

    def dot(left, right):
        return np.einsum("ij,ij->i", left, right)[:, None]

    # Woodbury's formula for the sum with plus plus^T - minus minus^T.
    by_plus, by_minus = inverse * plus, inverse * minus
    a = dot(plus, by_plus) + 1.0
    b = dot(plus, by_minus)
    c = dot(minus, by_minus) - 1.0
    determinant = a * c - b**2

    def solve(values):
        result = inverse * ((values * scale) @ vectors)
        p, m = dot(plus, result), dot(minus, result)
        result -= by_plus * ((c * p - b * m) / determinant)
        result -= by_minus * ((a * m - b * p) / determinant)
        return (result @ vectors.T) * scale

    return solve


def leave_out(outputs, leverage, inputs, labels, weights):
    """Moves each row's outputs to where a fit without the row has them.

    Args:
        outputs: Outputs of the fit of a vector, `(n, K)`; they are changed.
        leverage: The result of `PairCurvature.leverage`.
        inputs: Inputs `(n, K)`.
        labels: Class ids `(n,)`.
        weights: Weights `(n,)`, or None.
    """
    excess = outputs.copy(order="K")
    losses_of(excess, labels)
    a, b, c = leverage.T.astype(inputs.dtype)
    moves = a * inputs
    moves += b
    moves *= inputs
    moves += c
    if weights is not None:
        moves *= weights.astype(moves.dtype)[:, None]
    # What is left of the curvature without the row's own, h p (1 - p).
    left = np.abs(excess)
    left *= left - 1
    left *= moves
    left += 1
    np.maximum(left, LEAST_LEFT, out=left)
    excess *= moves
    excess /= left
    outputs += excess


def is_large(parameters):
    """Whether products with these parameters are worth threads of BLAS.

    Threads of a smaller product wait for each other longer than they work, and
    keep the cores busy while waiting for the next one.
    """
    return parameters.size * len(parameters) >= LARGE_PRODUCT


def blas_threads(parameters):
    """A context in which BLAS uses one thread, unless products are large."""
    if is_large(parameters):
        return contextlib.nullcontext()
    return _one_thread


class _OneThread:
    """A context in which BLAS uses one thread.

    The number of threads is a setting of the whole process. If several threads
    of a program are in the context at once, the last one restores the setting.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0
        self.limit = None

    def __enter__(self):
        with self.lock:
            if self.count == 0:
                self.limit = _blas().limit(limits=1)
            self.count += 1

    def __exit__(self, *error):
        with self.lock:
            self.count -= 1
            if self.count == 0:
                self.limit.restore_original_limits()


_one_thread = _OneThread()


@functools.cache
def _blas():
    # Looking for the libraries takes milliseconds.
    return ThreadpoolController().select(user_api="blas")
