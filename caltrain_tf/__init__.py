"""Soft calibration objectives for Keras.

The rooms of the package are imported when they are first used, so that a user
of the losses does not wait for TensorFlow Datasets or matplotlib.
"""

import importlib

from caltrain_tf import losses
from caltrain_tf.losses import CompositeLoss

__version__ = "0.1.0"

_LAZY_ROOMS = (
    "data",
    "evaluation",
    "experiments",
    "figures",
    "interop",
    "metrics",
    "models",
    "ops",
    "posthoc",
    "report",
    "training",
)

__all__ = ["CompositeLoss", "losses", *_LAZY_ROOMS]


def __getattr__(name):
    if name in _LAZY_ROOMS:
        return importlib.import_module(f"caltrain_tf.{name}")
    raise AttributeError(f"module 'caltrain_tf' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LAZY_ROOMS})
