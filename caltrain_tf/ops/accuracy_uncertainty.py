"""The ratio that the AvUC losses share."""

from keras import ops

from caltrain_tf.ops.replicas import sum_over_replicas

# The smallest denominator, as in the authors' released code.
SMALLEST_AGREEMENT = 1e-5


def accuracy_versus_uncertainty(
    correct, certainty, uncertainty, weight, cross_replica
):
    """log(1 + (n_AU + n_IC) / (n_AC + n_IU)).

    Args:
        correct: 1.0 where a prediction is accurate, else 0.0, `(batch,)`.
        certainty: What an accurate or inaccurate example counts as certain:
            the pair of its terms of n_AC and n_IC, each `(batch,)`.
        uncertainty: Likewise the pair of its terms of n_AU and n_IU.
        weight: `(batch,)`.
        cross_replica: Whether the batch is the global one.

    Returns:
        A scalar; 0 for a batch without any weight.
    """
    accurate = weight * correct
    inaccurate = weight * (1.0 - correct)
    agreement = accurate * certainty[0] + inaccurate * uncertainty[1]
    disagreement = accurate * uncertainty[0] + inaccurate * certainty[1]
    sums = ops.sum(ops.stack([agreement, disagreement]), axis=1)
    if cross_replica:
        sums = sum_over_replicas(sums)
    return ops.log1p(sums[1] / ops.maximum(sums[0], SMALLEST_AGREEMENT))
