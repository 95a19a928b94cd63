"""Confidence, correctness and entropy of predictions `(n, classes)`.

All functions take and return float32 and have finite gradients everywhere,
also at logits of -1e30 and at probabilities of exactly 0 and 1.
"""

import math

from keras import ops

from caltrain_tf.inputs import SMALLEST_PROBABILITY, class_ids, first_argmax

# How much of the uniform distribution is mixed in before taking an entropy.
ENTROPY_SMOOTHING = 1e-5


def log_probabilities(y_pred, from_logits, smallest=SMALLEST_PROBABILITY):
    """Log-probabilities; probabilities below `smallest` are raised to it."""
    if from_logits:
        return ops.log_softmax(y_pred, axis=-1)
    return ops.log(ops.maximum(y_pred, smallest))


def probabilities(y_pred, from_logits):
    """Class probabilities `(n, classes)`."""
    return ops.softmax(y_pred, axis=-1) if from_logits else y_pred


def confidence(y_pred, from_logits):
    """The largest class probability `(n,)`.

    For logits it is 1 / sum(exp(logit - largest logit)), so that the softmax
    itself is not needed.
    """
    if not from_logits:
        return ops.max(y_pred, axis=-1)
    largest = ops.max(y_pred, axis=-1, keepdims=True)
    return 1.0 / ops.sum(ops.exp(y_pred - largest), axis=-1)


def correctness(labels, y_pred):
    """1.0 where the predicted class is the label, else 0.0, `(n,)`.

    No gradient flows through it.
    """
    predicted = first_argmax(ops.stop_gradient(y_pred))
    return ops.cast(predicted == class_ids(labels), "float32")


def entropy(y_pred, from_logits):
    """Entropy in nats of `(1 - e) p + e / K` with e = 1e-5, `(n,)`."""
    if from_logits:
        return _entropy_of_logits(y_pred)
    return _entropy(y_pred)[0]


@ops.custom_gradient
def _entropy_of_logits(logits):
    """The entropy, with its gradient in one pass over the logits.

    With q = (1 - e) p + e / K and the row's mean m = sum_k p_k log q_k,

        d entropy / d logit_k = -(1 - e) p_k (log q_k - m)

    Automatic differentiation would sum over the classes once more.
    """
    probs = ops.softmax(logits, axis=-1)
    value, log_smoothed = _entropy(probs)
    mean = ops.sum(probs * log_smoothed, axis=-1, keepdims=True)

    def gradient(*args, upstream=None):
        if upstream is None:
            (upstream,) = args
        slope = (ENTROPY_SMOOTHING - 1.0) * probs * (log_smoothed - mean)
        return ops.expand_dims(upstream, -1) * slope

    return value, gradient


def _entropy(probs):
    """`(entropy, log q)` of the smoothed distribution q."""
    smoothed = (1.0 - ENTROPY_SMOOTHING) * probs
    smoothed = smoothed + ENTROPY_SMOOTHING / probs.shape[-1]
    log_smoothed = ops.log(smoothed)
    return -ops.sum(smoothed * log_smoothed, axis=-1), log_smoothed


def largest_entropy(num_classes):
    """Entropy in nats of the uniform distribution."""
    return math.log(num_classes)
