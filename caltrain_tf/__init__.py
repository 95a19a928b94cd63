"""Soft calibration objectives for Keras.

`import caltrain_tf` imports the losses, metrics and layers, which registers
them with Keras, so that saved models load. The other modules are imported when
they are first used, so that TensorFlow Datasets and other large dependencies
are loaded only where they are needed.
"""

import importlib

from caltrain_tf import layers, losses, metrics
from caltrain_tf.losses import CompositeLoss

__version__ = "0.2.0"

_LAZY_ROOMS = (
    "callbacks",
    "data",
    "evaluation",
    "experiments",
    "figures",
    "interop",
    "models",
    "ops",
    "posthoc",
    "report",
    "training",
)

__all__ = ["CompositeLoss", "layers", "losses", "metrics", *_LAZY_ROOMS]


def __getattr__(name):
    if name in _LAZY_ROOMS:
        return importlib.import_module(f"caltrain_tf.{name}")
    raise AttributeError(f"module 'caltrain_tf' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LAZY_ROOMS})
