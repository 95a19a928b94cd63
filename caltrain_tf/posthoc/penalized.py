"""Affine maps of inputs that minimise a penalised likelihood.

    mean NLL(outputs) + sum(strength * (parameters - centre)^2)

Parameters are an array `(K, m)` whose last column is the bias: with m = K + 1
the outputs are `inputs @ parameters[:, :-1].T + bias`, and with m = 2 they are
`inputs * parameters[:, 0] + bias`.
"""

import numpy as np

from caltrain_tf.posthoc import lbfgs
from caltrain_tf.posthoc.tempered import row_max
from caltrain_tf.posthoc.whitening import whitening


def apply(parameters, inputs):
    """The affine map."""
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

    def block(inputs, labels, _):
        outputs = apply(parameters, inputs)
        return len(labels), _subtract_labels(outputs, labels)

    count, total = np.sum(rows.map(block), axis=0)
    return total / count


def fit(rows, start, centre, strength, *, max_iterations, tolerance):
    """The parameters of the smallest penalised likelihood, by L-BFGS.

    Args:
        rows: Rows whose logits are the inputs.
        start: Where to start, `(K, m)`.
        centre: Where the penalty is 0, `(K, m)`.
        strength: Of the penalty, `(K, m)`.
        max_iterations: Of L-BFGS.
        tolerance: Relative improvement at which it ends.

    Returns:
        Parameters `(K, m)`.
    """
    # Inputs are large, far from 0 and alike, which makes the problem badly
    # conditioned. In these coordinates its curvature is about 1 everywhere.
    basis = whitening(rows, lambda inputs: apply(start, inputs), strength)

    def to_parameters(coordinates):
        return start + _multiply(coordinates, basis)

    def objective(coordinates):
        parameters = to_parameters(coordinates)
        value, gradient = _value_and_gradient(rows, parameters)
        change = parameters - centre
        value += np.sum(strength * change**2)
        gradient += 2 * strength * change
        return value, _multiply(gradient, np.swapaxes(basis, -1, -2))

    return to_parameters(
        lbfgs.minimize(
            objective,
            np.zeros_like(start),
            max_iterations=max_iterations,
            tolerance=tolerance,
        )
    )


def _value_and_gradient(rows, parameters):
    """The mean negative log-likelihood and its gradient `(K, m)`."""
    is_matrix = _is_matrix(parameters)

    def block(inputs, labels, _):
        excess = apply(parameters, inputs)
        total = _subtract_labels(excess, labels)
        if is_matrix:
            scale = excess.T @ inputs
        else:
            scale = np.einsum("ij,ij->j", excess, inputs)[:, None]
        bias = excess.sum(axis=0, dtype=np.float64)[:, None]
        return len(labels), total, np.hstack([scale, bias])

    if is_matrix:
        # BLAS uses all cores, and a gradient is too large to keep many.
        parts = (block(*part) for part in rows.blocks())
    else:
        parts = rows.map(block)
    count, total, gradient = 0, 0.0, np.zeros_like(parameters)
    for part in parts:
        count += part[0]
        total += part[1]
        gradient += part[2]
    return total / count, gradient / count


def _multiply(values, basis):
    """Rows `(K, m)` times one matrix, or each times its own."""
    if basis.ndim == 2:
        return values @ basis
    return np.matmul(values[:, None, :], basis)[:, 0]


def _is_matrix(parameters):
    return parameters.shape[1] == len(parameters) + 1


def _subtract_labels(outputs, labels):
    """Sum of the negative log-likelihood; leaves softmax - one-hot behind."""
    chosen = np.arange(len(labels)), labels
    outputs -= row_max(outputs)[:, None]
    of_label = outputs[chosen].astype(np.float64)
    np.exp(outputs, out=outputs)
    totals = np.einsum("ij->i", outputs)
    outputs /= totals[:, None]
    outputs[chosen] -= 1.0
    return np.sum(np.log(totals, dtype=np.float64) - of_label)
