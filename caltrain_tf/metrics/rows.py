"""A value for every example, in one checked pass over the predictions."""

import numpy as np

from caltrain_tf.checks import check_flag
from caltrain_tf.metrics.blocks import map_blocks
from caltrain_tf.metrics.inputs import as_labels
from caltrain_tf.metrics.inputs import as_predictions
from caltrain_tf.metrics.inputs import check_block

# exp of it is 0, and products with it are finite.
LOWEST_LOGIT = -1e4


def row_values(function, predictions, labels, from_logits, name="probs"):
    """Applies `function(block, label_block, from_logits)` to all rows.

    Args:
        function: Returns a value for each row of a block, float32 or float64.
        predictions: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `predictions` holds logits.
        name: How errors call `predictions`.

    Returns:
        float64 `(N,)`.
    """
    check_flag("from_logits", from_logits)
    predictions = as_predictions(predictions, name)
    num_rows, num_classes = predictions.shape
    labels = as_labels(labels, num_rows, num_classes)
    values = np.empty(num_rows)

    def fill(start, stop):
        block = predictions[start:stop]
        check_block(block, start, from_logits, name)
        values[start:stop] = function(block, labels[start:stop], from_logits)

    map_blocks(fill, num_rows, predictions.itemsize * num_classes)
    return values


def shift_logits(logits, largest=None):
    """Logits minus their largest, which are at least `LOWEST_LOGIT`."""
    if largest is None:
        largest = logits.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        shifted = logits - largest
    return np.maximum(shifted, LOWEST_LOGIT, out=shifted)


def softmax(shifted):
    """Probabilities of logits whose largest is 0; overwrites them."""
    powers = np.exp(shifted, out=shifted)
    return np.divide(powers, row_sums(powers)[:, None], out=powers)


def row_sums(block):
    """Like `sum(axis=1)`, and three times as fast for short rows."""
    return np.einsum("ij->i", block)


def at_label(block, labels):
    """The entry of each row that belongs to its label."""
    return np.take_along_axis(block, labels[:, None], axis=1)[:, 0]
