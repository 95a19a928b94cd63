"""Losses by name, as flags and configuration files spell them."""

from collections.abc import Mapping

import keras

from caltrain_tf.checks import check_choice
from caltrain_tf.losses.avuc import AvUC
from caltrain_tf.losses.focal import Focal
from caltrain_tf.losses.mmce import MMCE
from caltrain_tf.losses.mse import MSE
from caltrain_tf.losses.nll import NLL
from caltrain_tf.losses.sb_ece import SBECE
from caltrain_tf.losses.sb_marginal_ece import SBMarginalECE
from caltrain_tf.losses.soft_avuc import SoftAvUC


def _avuc_gs(stop_gradient=True, **options):
    return AvUC(stop_gradient=stop_gradient, **options)


PRIMARY = {"nll": NLL, "focal": Focal, "mse": MSE}
SECONDARY = {
    "sb_ece": SBECE,
    "s_avuc": SoftAvUC,
    "avuc": AvUC,
    "avuc_gs": _avuc_gs,
    "mmce": MMCE,
    "sb_marginal_ece": SBMarginalECE,
}
_BY_NAME = {**PRIMARY, **SECONDARY}


def get(identifier, **options):
    """Returns the loss that `identifier` stands for.

    Args:
        identifier: A name such as `"sb_ece"`; a config, which is what
            `keras.losses.serialize` or `loss.get_config` gives, or a dict of
            such a name and options; or a `keras.losses.Loss`, which is
            returned as it is.
        **options: Options of the loss that a name or config leaves open.

    Returns:
        A `keras.losses.Loss`.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.get("sb_ece", num_bins=10).num_bins
        10
        >>> ct.losses.get({"name": "s_avuc", "threshold": 0.3}).threshold
        0.3
    """
    if isinstance(identifier, keras.losses.Loss):
        return identifier
    if isinstance(identifier, str):
        check_choice("identifier", identifier, tuple(_BY_NAME))
        return _BY_NAME[identifier](**options)
    # `ml_collections.ConfigDict` is no Mapping.
    if isinstance(identifier, Mapping) or hasattr(identifier, "to_dict"):
        config = dict(identifier)
        if "class_name" in config:
            return keras.saving.deserialize_keras_object(config)
        check_choice("name", config.get("name"), tuple(_BY_NAME))
        return _BY_NAME[config["name"]](**{**options, **config})
    raise ValueError(
        "`identifier` must be a name, a config or a `keras.losses.Loss`. "
        f"Received: identifier={identifier!r}"
    )
