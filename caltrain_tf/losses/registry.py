"""Losses by name, as flags and configuration files spell them."""

import inspect
from collections.abc import Mapping

import keras

from caltrain_tf import checks
from caltrain_tf.losses.avuc import AvUC
from caltrain_tf.losses.base import accepted
from caltrain_tf.losses.bsce_gra import BSCEGRA
from caltrain_tf.losses.dual_focal import DualFocal
from caltrain_tf.losses.esd import ESD
from caltrain_tf.losses.focal import Focal
from caltrain_tf.losses.margin import ACLS, MbLS
from caltrain_tf.losses.mdca import DCA, MDCA
from caltrain_tf.losses.mmce import MMCE
from caltrain_tf.losses.mse import MSE
from caltrain_tf.losses.nll import NLL
from caltrain_tf.losses.sb_ece import SBECE
from caltrain_tf.losses.sb_marginal_ece import SBMarginalECE
from caltrain_tf.losses.soft_avuc import SoftAvUC


def _avuc_gs(stop_gradient=True, name="avuc_gs", **options):
    return AvUC(stop_gradient=stop_gradient, name=name, **options)


PRIMARY = {
    "nll": NLL,
    "focal": Focal,
    "mse": MSE,
    "dual_focal": DualFocal,
    "bsce_gra": BSCEGRA,
}
SECONDARY = {
    "sb_ece": SBECE,
    "s_avuc": SoftAvUC,
    "avuc": AvUC,
    "avuc_gs": _avuc_gs,
    "mmce": MMCE,
    "sb_marginal_ece": SBMarginalECE,
    "esd": ESD,
    "mdca": MDCA,
    "dca": DCA,
    "mbls": MbLS,
    "acls": ACLS,
}
_BY_NAME = {**PRIMARY, **SECONDARY}


def get(identifier, **options):
    """Returns the loss that `identifier` stands for.

    Args:
        identifier: A name such as `"sb_ece"`; a config, which is the result of
            `keras.losses.serialize` for any loss, the result of `get_config`
            for a loss that has such a name, or a dict of a name and options
            (`{"loss": "sb_ece", "name": "mine"}` for a loss with a custom
            name); or anything that `keras.losses.get` knows: a `Loss` or a
            function, which is returned unchanged, or the name of one.
        **options: Options of the loss that the name or config does not set.

    Returns:
        A `keras.losses.Loss`, or a function of Keras or of the caller.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.get("sb_ece", num_bins=10)
        SBECE(num_bins=10)
        >>> ct.losses.get({"name": "s_avuc", "threshold": 0.3})
        SoftAvUC(threshold=0.3)
    """
    if isinstance(identifier, str):
        if identifier in _BY_NAME:
            return _BY_NAME[identifier](**options)
        return _get_of_keras(identifier, options)
    # `ml_collections.ConfigDict` is not a `Mapping`.
    if isinstance(identifier, Mapping) or hasattr(identifier, "to_dict"):
        config = dict(identifier)
        if "class_name" in config:
            return keras.losses.deserialize(config)
        if "primary" in config or "num_groups" in config:
            raise ValueError(
                "The config of a loss with parts must be that of "
                "`keras.losses.serialize`, which says its class. "
                f"Received: identifier={identifier!r}"
            )
        kind = config.pop("loss", config.get("name"))
        checks.choice("name", kind, tuple(_BY_NAME))
        return _BY_NAME[kind](**{**options, **config})
    if inspect.isclass(identifier) and issubclass(
        identifier, keras.losses.Loss
    ):
        return identifier(**accepted(identifier, options))
    if callable(identifier) and not inspect.isclass(identifier):
        return identifier
    raise ValueError(
        "`identifier` must be a name, a config, a `keras.losses.Loss` or a "
        f"function. Received: identifier={identifier!r}"
    )


def _get_of_keras(name, options):
    try:
        found = keras.losses.get(name)
    except ValueError:
        found = None
    if found is None:
        checks.choice("identifier", name, tuple(_BY_NAME))
    if isinstance(found, keras.losses.Loss):
        return type(found)(**accepted(type(found), options))
    return found
