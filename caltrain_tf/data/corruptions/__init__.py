"""The corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C."""

# Importing these modules registers the corruptions for `get`.
from caltrain_tf.data.corruptions import blur, digital, noise, weather
from caltrain_tf.data.corruptions.core import (
    EXTRA_NAMES,
    NAMES,
    SEVERITIES,
    get,
)

__all__ = [
    "EXTRA_NAMES",
    "NAMES",
    "SEVERITIES",
    "blur",
    "digital",
    "get",
    "noise",
    "weather",
]
