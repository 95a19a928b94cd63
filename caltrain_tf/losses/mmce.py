"""Maximum mean calibration error, a kernel measure without bins."""

import keras
from keras import ops

from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import BatchLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions
from caltrain_tf.ops.laplacian import laplacian_quadratic_form
from caltrain_tf.ops.replicas import gather_over_replicas


def mmce(
    y_true,
    y_pred,
    *,
    width=0.4,
    weighted=False,
    from_logits=False,
    sample_weight=None,
    cross_replica=False,
):
    """Squared maximum mean calibration error, in O(N log N).

    With confidences c_i, correctness a_i and k_ij = exp(-|c_i - c_j| / width),

        sum_ij (c_i - a_i) (c_j - a_j) k_ij / N^2

    Weighted, the correct and the incorrect examples count half each, however
    few they are: (c_i - a_i) / N becomes (c_i - a_i) / number of examples that
    are as correct as i.

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        width: Width of the kernel, at least 0.01.
        weighted: Whether to weigh correct and incorrect examples the same.
        from_logits: Whether `y_pred` holds logits.
        sample_weight: Weights `(batch,)` of the examples inside the sum.
        cross_replica: Whether to take all replicas' batches as one.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.mmce([0, 1, 1], probs)), 4)
        0.0196

    Reference:
        Kumar et al., "Trainable Calibration Measures for Neural Networks from
        Kernel Mean Embeddings", 2018.
    """
    _check(width)
    y_true, y_pred, weight = labels.standardize(
        y_true, y_pred, from_logits, sample_weight
    )
    confidence = predictions.confidence(y_pred, from_logits)
    correct = predictions.correctness(y_true, y_pred)
    if cross_replica:
        together = ops.stack([confidence, correct, weight], axis=1)
        together = gather_over_replicas(together)
        confidence, correct, weight = ops.unstack(together, 3, axis=1)
    if weighted:
        hits = ops.sum(weight * correct)
        count = ops.where(correct == 1.0, hits, ops.sum(weight) - hits)
    else:
        count = ops.sum(weight)
    share = ops.divide_no_nan(weight, count)
    return laplacian_quadratic_form(
        confidence, share * (confidence - correct), width
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class MMCE(BatchLoss):
    """`mmce` as a loss for `model.compile`; see there."""

    function = staticmethod(mmce)
    option_names = ("width", "weighted")

    def __init__(
        self,
        width=0.4,
        weighted=False,
        from_logits=False,
        name="mmce",
        **kwargs,
    ):
        """Takes the options of `mmce`."""
        _check(width)
        super().__init__(from_logits, name, **kwargs)
        self.width = width
        self.weighted = weighted


def _check(width):
    check_number("width", width, low=0.01, closed=True)
