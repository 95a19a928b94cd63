"""BSCE-GRA: cross-entropy weighted by how uncertain an example is."""

from functools import partial

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses.base import FunctionLoss, loss_function


@loss_function(
    per_example=True,
    gamma=partial(checks.number, low=0, closed=True),
    norm=partial(checks.number, low=1, closed=True),
)
def bsce_gra(batch, *, gamma=5.0, norm=1):
    """Cross-entropy whose gradient is weighted by a generalised Brier score.

    With the distance between label and prediction taken as a constant,

        bsce_gra = -stop_gradient(||y - p||_norm ^ gamma) sum_k y_k log p_k

    Focal loss weights the loss, and therefore also differentiates the weight;
    this loss weights the gradient of the cross-entropy. The authors' code gives
    the same values for class ids, but by default it sums them over the batch
    and has a `gamma` of 0.

    Args:
        batch: The examples.
        gamma: The exponent, at least 0 (which gives `nll`).
        norm: Norm of the distance, at least 1. For `norm=1` and class ids, the
            distance is 2 (1 - p) with the probability p of the label's class.

    Returns:
        A value for each example, `(...)`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.5], [0.8, 0.2]]
        >>> ct.losses.bsce_gra([0, 1], probs).numpy().round(4)
        array([ 0.6931, 16.8763], dtype=float32)
        >>> loss = ct.losses.BSCEGRA(gamma=2.0, norm=2)
        >>> round(float(loss([0, 1], probs)), 4)
        1.2033

    Reference:
        Lin et al., "Uncertainty Weighted Gradients for Model Calibration",
        2025.
    """
    smallest = batch.smallest
    if smallest == inputs.SMALLEST_FLOAT16_PROBABILITY:
        # The weight, up to 2^(gamma / norm), multiplies the slope 1 / p, which
        # would not be finite in float16.
        smallest = min(smallest * 2 ** (gamma / norm), 0.5)
    log_probs = batch.log_probabilities(smallest)
    probs = ops.stop_gradient(batch.probabilities())
    targets = batch.label_distribution()
    distance = ops.abs(targets - probs)
    if norm == 1:
        distance = ops.sum(distance, axis=-1)
    elif norm == 2:
        distance = ops.sqrt(ops.sum(ops.square(distance), axis=-1))
    else:
        # Dividing by the largest entry keeps high powers from underflowing.
        largest = ops.max(distance, axis=-1, keepdims=True)
        powers = ops.power(ops.divide_no_nan(distance, largest), norm)
        root = ops.power(ops.sum(powers, axis=-1), 1.0 / norm)
        distance = largest[:, 0] * root
    cross_entropy = -ops.sum(targets * log_probs, axis=-1)
    return ops.power(distance, gamma) * cross_entropy


@keras.saving.register_keras_serializable("caltrain_tf")
class BSCEGRA(FunctionLoss, function=bsce_gra, name="bsce_gra"):
    """`bsce_gra` as a loss for `model.compile`."""
