"""Confidence and correctness of every prediction, in one checked pass."""

import numpy as np

from caltrain_tf.checks import check_flag
from caltrain_tf.metrics.blocks import map_blocks
from caltrain_tf.metrics.inputs import as_labels
from caltrain_tf.metrics.inputs import as_predictions
from caltrain_tf.metrics.inputs import check_block
from caltrain_tf.metrics.rows import row_sums
from caltrain_tf.metrics.rows import shift_logits

# NumPy reduces short rows one by one. Up to this many classes it is faster to
# turn a block over and to reduce whole columns.
LONGEST_SHORT_ROW = 48


def top_label(predictions, labels, from_logits=False, name="probs"):
    """The largest probability of each row, and whether it is the label's.

    Among equal largest probabilities, the first class is the predicted one.

    Args:
        predictions: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `predictions` holds logits.
        name: How errors call `predictions`.

    Returns:
        Confidences `(N,)`, at most 1, of the predictions' type; and booleans
        `(N,)`.

    Example:
        >>> confidence, correct = top_label([[0.75, 0.25], [0.5, 0.5]], [0, 1])
        >>> confidence.tolist(), correct.tolist()
        ([0.75, 0.5], [True, False])
    """
    check_flag("from_logits", from_logits)
    predictions = as_predictions(predictions, name)
    num_rows, num_classes = predictions.shape
    labels = as_labels(labels, num_rows, num_classes)
    confidence = np.empty(num_rows, predictions.dtype)
    correct = np.empty(num_rows, bool)

    def fill(start, stop):
        block = predictions[start:stop]
        if num_classes <= LONGEST_SHORT_ROW:
            block = np.asfortranarray(block)
        largest, predicted = _largest(block)
        check_block(block, start, from_logits, name, largest.max())
        np.equal(predicted, labels[start:stop], out=correct[start:stop])
        if from_logits:
            powers = shift_logits(block, largest[:, None])
            largest = 1 / row_sums(np.exp(powers, out=powers))
        np.minimum(largest, 1, out=confidence[start:stop])

    map_blocks(fill, num_rows, predictions.itemsize * num_classes)
    return confidence, correct


def _largest(block):
    """The largest value of each row, and the first class that has it."""
    if block.flags.c_contiguous or block.shape[1] > LONGEST_SHORT_ROW:
        predicted = block.argmax(axis=1)
        largest = np.take_along_axis(block, predicted[:, None], axis=1)
        return largest[:, 0], predicted
    columns = block.T
    largest = columns.max(axis=0)
    predicted = np.zeros(len(block), np.uint8)
    # From the last class to the first, so that the first one stays.
    for k in range(len(columns) - 1, -1, -1):
        predicted[columns[k] == largest] = k
    return largest, predicted
