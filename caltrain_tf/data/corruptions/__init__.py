"""The corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C."""

from caltrain_tf.data.corruptions.registry import EXTRA_NAMES
from caltrain_tf.data.corruptions.registry import NAMES
from caltrain_tf.data.corruptions.registry import SEVERITIES
from caltrain_tf.data.corruptions.registry import get

__all__ = ["EXTRA_NAMES", "NAMES", "SEVERITIES", "get"]
