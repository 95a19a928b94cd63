"""Soft calibration objectives for Keras.

`import caltrain_tf` imports the losses, metrics and layers, which registers
them with Keras, so that saved models load. The other modules are imported when
they are first used, so that TensorFlow Datasets and other large dependencies
are loaded only where they are needed.
"""

import importlib

from caltrain_tf import layers, losses, metrics
from caltrain_tf.diagnose import diagnose
from caltrain_tf.losses import CompositeLoss

__version__ = "0.2.0"

# The rooms that are imported when they are first used, and the extras of this
# package that they need beside its dependencies.
_LAZY_ROOMS = {
    "callbacks": "",
    "data": "tensorflow,baselines",
    "experiments": "tensorflow,baselines",
    "figures": "figures",
    "interleaved": "",
    "models": "baselines",
    "posthoc": "",
    "training": "tensorflow,baselines",
}

__all__ = [
    "CompositeLoss",
    "diagnose",
    "layers",
    "losses",
    "metrics",
    *_LAZY_ROOMS,
]


def __getattr__(name):
    if name not in _LAZY_ROOMS:
        raise AttributeError(f"module 'caltrain_tf' has no attribute {name!r}")
    try:
        return importlib.import_module(f"caltrain_tf.{name}")
    except ModuleNotFoundError as error:
        extras = _LAZY_ROOMS[name]
        library = (error.name or "").partition(".")[0]
        if not extras or library == "caltrain_tf":
            raise
        raise ImportError(
            f"`caltrain_tf.{name}` needs {library!r}, which is not "
            f'installed. Run `pip install "caltrain_tf[{extras}]"`.'
        ) from error


def __dir__():
    return sorted({*globals(), *_LAZY_ROOMS})
