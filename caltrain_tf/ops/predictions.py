"""Confidence, correctness and entropy of standardized predictions.

All functions take and return float32 and have finite gradients everywhere,
also at logits of -1e30 and at probabilities of exactly 0 and 1.
"""

import math

from keras import ops

from caltrain_tf.ops import labels

# Keras' own epsilon: the smallest probability whose logarithm is taken.
SMALLEST_PROBABILITY = 1e-7
# How much of the uniform distribution is mixed in before taking an entropy.
ENTROPY_SMOOTHING = 1e-5


def log_probabilities(y_pred, from_logits):
    """Logarithms of the class probabilities `(batch, classes)`."""
    if from_logits:
        return ops.log_softmax(y_pred, axis=-1)
    return ops.log(ops.maximum(y_pred, SMALLEST_PROBABILITY))


def probabilities(y_pred, from_logits):
    """Class probabilities `(batch, classes)`."""
    if from_logits:
        return ops.softmax(y_pred, axis=-1)
    return y_pred


def confidence(y_pred, from_logits):
    """The largest class probability `(batch,)`.

    Of logits it is 1 / sum(exp(logit - largest logit)), so that the softmax
    itself is not needed.
    """
    if not from_logits:
        return ops.max(y_pred, axis=-1)
    largest = ops.max(y_pred, axis=-1, keepdims=True)
    return 1.0 / ops.sum(ops.exp(y_pred - largest), axis=-1)


def correctness(y_true, y_pred):
    """1.0 where the predicted class is the label's, else 0.0, `(batch,)`.

    NaN where the label is invalid. No gradient flows through it.
    """
    predicted = labels.first_argmax(ops.stop_gradient(y_pred))
    correct = ops.cast(predicted == labels.class_ids(y_true), "float32")
    return labels.nan_where_invalid(correct, y_true, y_pred.shape[-1])


def entropy(probs):
    """Entropy in nats of `(1 - e) p + e / K` with e = 1e-5, `(batch,)`."""
    num_classes = probs.shape[-1]
    smoothed = (1.0 - ENTROPY_SMOOTHING) * probs
    smoothed = smoothed + ENTROPY_SMOOTHING / num_classes
    return -ops.sum(smoothed * ops.log(smoothed), axis=-1)


def largest_entropy(num_classes):
    """Entropy in nats of the uniform distribution."""
    return math.log(num_classes)
