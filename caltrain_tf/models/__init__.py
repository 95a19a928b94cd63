"""Networks that return logits.

| name | function |
|---|---|
| `wrn-<depth>-<width>` | `wide_resnet` |
| `resnet-50` | `resnet50` |
| `MobileNetV2`, ... | any model of `keras.applications` |
| `path/model.keras` | `load` |
"""

from caltrain_tf.models.registry import get, load
from caltrain_tf.models.resnet50 import resnet50
from caltrain_tf.models.wide_resnet import wide_resnet

__all__ = ["get", "load", "resnet50", "wide_resnet"]
