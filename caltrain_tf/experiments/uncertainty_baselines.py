"""Losses of this package in Uncertainty Baselines, and its networks here."""

import tensorflow as tf

from caltrain_tf import losses
from caltrain_tf.data import datasets, pipeline
from caltrain_tf.data.corruptions import NAMES

# How the name of a weight ends in its checkpoints.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def objective(primary, secondary=None, beta=1.0):
    """Returns a `CompositeLoss` as a function of labels and logits.

    The labels are class ids or one-hot. The loss is the mean over the batch,
    not divided by the number of replicas.

    Example:
        >>> loss = objective("nll", "sb_ece", beta=0.0)
        >>> logits = tf.constant([[0.0, 0.0], [0.0, 0.0]])
        >>> round(float(loss([0, 1], logits)), 4)
        0.6931
    """
    composite = losses.CompositeLoss(primary, secondary, beta, from_logits=True)

    def loss(labels, logits):
        logits = tf.cast(logits, "float32")
        # `__call__` of Keras 3 would divide by the number of replicas.
        values = composite.call(tf.convert_to_tensor(labels), logits)
        return tf.reduce_mean(values)

    return loss


def is_checkpoint(init_from):
    """Returns whether `--init_from` names a checkpoint, not a `.keras` file."""
    return init_from is not None and not init_from.endswith(".keras")


def rescaling(dataset):
    """Returns how its networks normalise pixels: `keras.layers.Rescaling`."""
    if dataset.name == "imagenet":  # Its ResNet-50 takes 0 to 255.
        return {"scale": 1.0, "offset": 0.0}
    if dataset.name == "cifar100":  # It takes the statistics of CIFAR-10.
        spec = datasets.SPECS["cifar10"]
        return pipeline.rescaling(spec.mean, spec.std)
    return dataset.rescaling


def load_weights(network, path):
    """Sets the weights of one of our networks to those of a checkpoint.

    Our networks have the layers of the same names in its order. `path` is the
    prefix of a `tf.train.Checkpoint(model=...)`, or the folder of some.
    """
    try:
        reader = tf.train.load_checkpoint(path)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"--init_from={path}: {error}") from error
    layers = [layer for layer in network.layers if layer.weights]
    weights = {
        f"model/layer_with_weights-{number}/{weight.name}{_VALUE}": weight
        for number, layer in enumerate(layers)
        for weight in layer.weights
    }
    shapes = reader.get_variable_to_shape_map()
    for key, weight in weights.items():
        if shapes.get(key) != list(weight.shape):
            raise ValueError(
                "--init_from must be a checkpoint of Uncertainty Baselines "
                f"with the weights of {network.name!r}. Received: {path}, "
                f"where {key.removesuffix(_VALUE)} has the shape "
                f"{shapes.get(key)} instead of {list(weight.shape)}"
            )
    for key, weight in weights.items():
        weight.assign(reader.get_tensor(key))


def log_names(rows):
    """Returns means over corrupted sets, such as `test/ece_mean_3`.

    `test/ece_mean_corrupted` is over all severities. `rows` have its metrics,
    those of robustness_metrics.
    """
    rows = rows[rows["corruption"].isin(NAMES) & (rows["calibrator"] == "none")]
    rows = rows[rows["metric"].isin(["nll", "accuracy", "ece"])]
    values = rows.groupby(["metric", "severity"])["value"].mean()
    means = {f"{m}_mean_{severity}": v for (m, severity), v in values.items()}
    for metric, value in values.groupby("metric").mean().items():
        means[f"{metric}_mean_corrupted"] = value
    return {f"test/{name}": float(value) for name, value in means.items()}
