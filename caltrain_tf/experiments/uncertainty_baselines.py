r"""Losses of this package in the training loops of Uncertainty Baselines.

Its release on PyPI has no models, and its sources require versions that exclude
current TensorFlow versions. Its Wide ResNets, data sets and CIFAR scripts work
with a current TensorFlow after:

    pip install --no-deps \
        git+https://github.com/google/uncertainty-baselines \
        git+https://github.com/google/edward2 \
        git+https://github.com/google-research/robustness_metrics
    pip install clu dm-haiku flax pandas tabulate tenacity tensorflow_hub \
        tensorflow_probability tf_keras
    export TF_USE_LEGACY_KERAS=1

Its models and optimizers use the older Keras 2 (`tf_keras`). Both Keras
versions work in one process, because a loss is a function of tensors. In a
script such as `baselines/cifar/deterministic.py`, replace

    negative_log_likelihood = tf.reduce_mean(
        tf.keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True))

with a call of the function that `objective` returns:

    train_objective = objective("focal", "sb_ece", beta=1.0)
    ...
    negative_log_likelihood = train_objective(labels, logits)

The rest of the script does not change: it adds the l2 loss and divides the sum
by the number of replicas. The calibration loss is that of each replica's batch.
"""

import tensorflow as tf

from caltrain_tf import checks, losses


def objective(primary, secondary=None, beta=1.0, **options):
    """Returns a loss as a function of labels and logits.

    Args:
        primary: The name of a loss.
        secondary: The name of a calibration loss, or None.
        beta: Weight of the calibration loss.
        **options: Options of the primary or the secondary loss, such as
            `secondary_temperature=0.01` or `primary_gamma=3.0`.

    Returns:
        A function from `labels`, class ids `(batch,)` or one-hot, and `logits`
        `(batch, classes)` to a scalar: the mean over this batch, not divided by
        the number of replicas.

    Example:
        >>> loss = objective("nll", "sb_ece", beta=0.0)
        >>> logits = tf.constant([[0.0, 0.0], [0.0, 0.0]])
        >>> round(float(loss([0, 1], logits)), 4)
        0.6931
    """
    parts = {"primary": {}, "secondary": {}}
    for key, value in options.items():
        part, _, name = key.partition("_")
        if part not in parts or not name:
            raise ValueError(
                "Options must begin with `primary_` or `secondary_`. "
                f"Received: {key}={value!r}"
            )
        parts[part][name] = value
    if secondary is None and parts["secondary"]:
        raise ValueError(
            "There must be a `secondary` for its options. "
            f"Received: secondary=None, options={parts['secondary']}"
        )
    checks.number("beta", beta, low=0, closed=True)
    first = losses.get(primary, from_logits=True, **parts["primary"])
    second = None
    if secondary is not None:
        second = losses.get(secondary, from_logits=True, **parts["secondary"])

    def loss(labels, logits):
        labels = tf.convert_to_tensor(labels)
        logits = tf.cast(logits, tf.float32)
        # `__call__` of Keras 3 would divide by the number of replicas.
        value = tf.reduce_mean(first.call(labels, logits))
        if second is not None:
            value += beta * tf.reduce_mean(second.call(labels, logits))
        return value

    return loss
