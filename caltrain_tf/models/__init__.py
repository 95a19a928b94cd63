"""Networks that return logits.

| name | function |
|---|---|
| `wrn-<depth>-<width>` | `wide_resnet` |
| `resnet-50` | `resnet50` |
| `MobileNetV2`, ... | any model of `keras.applications` |
| `path/model.keras` | `load` |
"""

from caltrain_tf.models.registry import get, load
from caltrain_tf.models.resnets import resnet50, wide_resnet

__all__ = ["get", "load", "resnet50", "wide_resnet"]
