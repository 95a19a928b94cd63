r"""Our losses in the training loops of Uncertainty Baselines.

The package's release on the registry has no models, and its sources ask for
versions that exclude a present TensorFlow. What its Wide ResNets, data sets and
CIFAR scripts need beside one:

    pip install --no-deps \
        git+https://github.com/google/uncertainty-baselines \
        git+https://github.com/google/edward2 \
        git+https://github.com/google-research/robustness_metrics
    pip install clu dm-haiku flax pandas tabulate tenacity tensorflow_hub \
        tensorflow_probability tf_keras
    export TF_USE_LEGACY_KERAS=1

Its models and optimizers are of the older Keras 2 (`tf_keras`); both Keras
versions live in one process, since a loss is a function of tensors. In a
script such as `baselines/cifar/deterministic.py`, replace

    negative_log_likelihood = tf.reduce_mean(
        tf.keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True))

by a call of the function that `objective` returns:

    train_objective = objective("focal", "sb_ece", beta=1.0)
    ...
    negative_log_likelihood = train_objective(labels, logits)

What follows there stays: the l2 loss is added, and the sum is divided by the
number of replicas. The calibration loss is that of each replica's batch.
"""

import tensorflow as tf

from caltrain_tf import losses
from caltrain_tf.checks import check_number


def objective(primary, secondary=None, beta=1.0, **options):
    """Returns a loss as a function of labels and logits.

    Args:
        primary: The name of a loss.
        secondary: The name of a calibration loss, or None.
        beta: The calibration loss's factor.
        **options: Options of the primary or the secondary loss, as
            `secondary_temperature=0.01`, `primary_gamma=3.0`.

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
    check_number("beta", beta, low=0, closed=True)
    first = losses.get(primary, from_logits=True, **parts["primary"])
    second = None
    if secondary is not None:
        second = losses.get(secondary, from_logits=True, **parts["secondary"])

    def loss(labels, logits):
        labels = tf.convert_to_tensor(labels)
        logits = tf.cast(logits, tf.float32)
        # `call`, since `__call__` of Keras 3 divides by the replicas itself.
        value = tf.reduce_mean(first.call(labels, logits))
        if second is not None:
            value += beta * tf.reduce_mean(second.call(labels, logits))
        return value

    return loss
