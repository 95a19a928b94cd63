"""Old names of `caltrain_tf.ops.inputs`, for the streaming metrics."""

from caltrain_tf.ops import inputs
from caltrain_tf.ops.inputs import SUM_TOLERANCE  # noqa: F401
from caltrain_tf.ops.inputs import class_ids  # noqa: F401
from caltrain_tf.ops.inputs import class_range  # noqa: F401
from caltrain_tf.ops.inputs import first_argmax  # noqa: F401
from caltrain_tf.ops.inputs import label_distribution  # noqa: F401


def standardize(y_true, y_pred, from_logits=False, sample_weight=None):
    """Labels, predictions and weights of `inputs.standardize`."""
    batch = inputs.standardize(
        y_true, y_pred, from_logits, sample_weight=sample_weight
    )
    weight = inputs.nan_where_invalid(batch.sample_weight, batch)
    return batch.labels, batch.predictions, weight


def nan_where_invalid(values, y_true, num_classes):
    """Returns `values`: invalid rows hold NaN predictions already."""
    return values
