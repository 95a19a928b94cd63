"""Coordinates in which a penalised likelihood is well conditioned.

The curvature of the mean negative log-likelihood in the parameters of class k
is E[p_k (1 - p_k) x x^T], where x are the inputs with a 1 for the bias. In the
basis of its inverse Cholesky factor it is the identity. What is left out are
the products of two classes' probabilities.
"""

import numpy as np

from caltrain_tf.metrics.rows import softmax
from caltrain_tf.posthoc import tempered

# What is added to a curvature's diagonal, relative to its mean.
RIDGE = 1e-6
SMALLEST_CURVATURE = 1e-12
# Up to this many classes, each has a matrix of its own.
MANY_CLASSES = 32
# Multiplications for all of these matrices, after which a sample has to do.
LARGEST_WORK = 2e9


def whitening(rows, outputs_of, strength):
    """The basis, `(K, m, m)` or one for all classes, `(m, m)`.

    Args:
        rows: Rows whose logits are the inputs.
        outputs_of: Function of a block of inputs, at the starting point.
        strength: Of the quadratic penalty, `(K, m)`.
    """
    num_classes, size = strength.shape
    if size == 2:
        moments = _of_pairs
    elif num_classes <= MANY_CLASSES:
        moments = _of_classes
    else:
        moments, strength = _of_all, strength.mean(axis=0)
    count, total = 0, 0.0
    for inputs, _, _ in rows.blocks():
        inputs = inputs.astype(np.float64)
        if moments is _of_classes:
            work = float(len(inputs)) * num_classes * size**2
            inputs = inputs[:: max(1, round(work / LARGEST_WORK))]
        probs = softmax(tempered.shift(outputs_of(inputs)))
        total = total + moments(inputs, probs * (1 - probs))
        count += len(inputs)
    curvature = total / count
    diagonal = np.arange(size)
    mean = np.mean(curvature[..., diagonal, diagonal], axis=-1, keepdims=True)
    extra = 2 * strength + RIDGE * mean + SMALLEST_CURVATURE
    curvature[..., diagonal, diagonal] += extra
    return np.linalg.inv(np.linalg.cholesky(curvature))


def _of_pairs(inputs, weight):
    """Of a scale and a bias of each class."""
    first = np.einsum("ij,ij->j", weight, inputs)
    second = np.einsum("ij,ij,ij->j", weight, inputs, inputs)
    rows = [[second, first], [first, weight.sum(axis=0)]]
    return np.array(rows).transpose(2, 0, 1)


def _of_classes(inputs, weight):
    """Of a row of the matrix and a bias of each class."""
    inputs = _with_one(inputs)
    return np.stack([(inputs * w[:, None]).T @ inputs for w in weight.T])


def _of_all(inputs, weight):
    """Of the mean of all classes."""
    inputs = _with_one(inputs)
    return (inputs * weight.mean(axis=1)[:, None]).T @ inputs


def _with_one(inputs):
    return np.hstack([inputs, np.ones((len(inputs), 1))])
