"""Networks by name, as flags and configuration files spell them."""

import difflib
import re

import keras

from caltrain_tf.models.resnet50 import resnet50
from caltrain_tf.models.wide_resnet import wide_resnet

_WIDE_RESNET = re.compile(r"wrn-(\d+)-(\d+)")
# To guess from when a name is wrong; every WRN-n-k can be had.
_COMMON = ("resnet-50", "wrn-10-1", "wrn-16-4", "wrn-28-10", "wrn-40-2")


def get(identifier, **options):
    """Returns the network that `identifier` stands for.

    Args:
        identifier: `"wrn-<depth>-<width>"` or `"resnet-50"`; a dict (or
            `ConfigDict`) of such a name and options; or a `keras.Model`,
            which is returned as it is.
        **options: Options that a name or config leaves open, such as
            `input_shape` and `num_classes`.

    Returns:
        A `keras.Model` that returns logits.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.models.get("wrn-10-1", num_classes=100).output_shape
        (None, 100)
        >>> ct.models.get({"name": "wrn-16-1", "num_classes": 2}).name
        'wrn-16-1'
    """
    if isinstance(identifier, keras.Model):
        return identifier
    # `ml_collections.ConfigDict` is not a Mapping.
    if hasattr(identifier, "items"):
        config = dict(identifier.items())
        name = config.pop("name", None)
        options = {**options, **config}
    else:
        name = identifier
    if name == "resnet-50":
        return resnet50(**options)
    match = _WIDE_RESNET.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        near = difflib.get_close_matches(str(name), _COMMON, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            "A network's name must be 'wrn-<depth>-<width>' or 'resnet-50'."
            f"{hint} Received: {name!r}"
        )
    depth, width = map(int, match.groups())
    return wide_resnet(depth, width, **options)
