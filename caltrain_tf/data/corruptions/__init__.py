"""The corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C."""

# Importing these modules registers the corruptions for `get`.
from caltrain_tf.data.corruptions import blur
from caltrain_tf.data.corruptions import digital
from caltrain_tf.data.corruptions import noise
from caltrain_tf.data.corruptions import weather
from caltrain_tf.data.corruptions.core import EXTRA_NAMES
from caltrain_tf.data.corruptions.core import NAMES
from caltrain_tf.data.corruptions.core import SEVERITIES
from caltrain_tf.data.corruptions.core import get

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
