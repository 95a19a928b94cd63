"""Networks by the names used in flags and configuration files."""

import os
import re

import keras
import numpy as np

from caltrain_tf import checks
from caltrain_tf.models import resnets

# For errors, which suggest the nearest name.
_KINDS = ("wrn-<depth>-<width>", "resnet-50", "mlp-<units>", "PATH.keras")
_COMMON = ("wrn-10-1", "wrn-16-4", "wrn-28-10", "wrn-40-2")


def get(name, **options):
    """Returns a network by its name.

    Args:
        name: `"wrn-<depth>-<width>"` or `"resnet-50"`; `"mlp-<units>"`, a head
            of one hidden layer for embeddings; the name of a model of
            `keras.applications`, such as `"MobileNetV2"`, which is built
            without pretrained weights; or the path of a `.keras` file.
        **options: Options of the network, such as `input_shape` and
            `num_classes`. A network loaded from a file must match them.

    Returns:
        A `keras.Model` that returns logits.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.models.get("wrn-10-1", num_classes=100).output_shape
        (None, 100)
    """
    name = str(name)
    if name == "resnet-50":
        return resnets.resnet50(**options)
    if match := re.fullmatch(r"wrn-(\d+)-(\d+)", name):
        return resnets.wide_resnet(*map(int, match.groups()), **options)
    if match := re.fullmatch(r"mlp-(\d+)", name):
        return _mlp(int(match[1]), **options)
    if name.endswith(".keras"):
        return _check_fits(load(name), name, **options)
    applications = [x for x in vars(keras.applications) if x[0].isupper()]
    if name in applications:
        options["classes"] = options.pop("num_classes", 1000)
        options = {"weights": None, "classifier_activation": None} | options
        return getattr(keras.applications, name)(**options)
    checks.choice("name", name, (*_KINDS, *_COMMON, *applications))


def _mlp(units, *, input_shape, num_classes):
    """Returns a hidden layer with ReLU and a layer of logits."""
    layers = [
        keras.Input(input_shape),
        keras.layers.Flatten(),
        keras.layers.Dense(units, "relu", name="hidden"),
        keras.layers.Dense(num_classes, dtype="float32", name="logits"),
    ]
    return keras.Sequential(layers, name=f"mlp-{units}")


def load(path):
    """Returns the network of any `.keras` file, local or in a bucket."""
    try:
        return keras.saving.load_model(os.fspath(path), compile=False)
    except (OSError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        if os.path.isfile(path):  # Keras says that it is not found.
            reason = f"the file is there, but damaged ({reason})"
        raise ValueError(
            f"The network cannot be loaded: {reason}. Received: {path}"
        ) from error


def _check_fits(network, path, input_shape=None, num_classes=None):
    for name, shape, expected in (
        ("input_shape", network.input_shape[1:], input_shape),
        ("num_classes", network.output_shape[-1], num_classes),
    ):
        is_known = expected is not None and None not in np.ravel(shape)
        if is_known and np.any(np.ravel(shape) != np.ravel(expected)):
            raise ValueError(
                f"The network of a file must have {name}={expected}. "
                f"Received: {path}, which has {shape}"
            )
    last = getattr(network.layers[-1], "activation", None)
    if last in (keras.activations.softmax, keras.activations.sigmoid):
        raise ValueError(
            "The network of a file must return logits. Received: "
            f"{path}, which ends in {last.__name__}"
        )
    return network
