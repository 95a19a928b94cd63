"""Networks that return logits."""

from caltrain_tf.models.registry import get, load
from caltrain_tf.models.resnets import resnet50, wide_resnet

__all__ = ["get", "load", "resnet50", "wide_resnet"]
