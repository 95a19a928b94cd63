"""Losses by name, as flags and configuration files spell them.

A new loss is one line here, and flags, configurations, reports and figures know
it.
"""

import functools
import inspect
from collections.abc import Mapping

import keras

from caltrain_tf import checks
from caltrain_tf.losses import (
    base,
    kernel,
    likelihood,
    margin,
    marginal,
    soft_bins,
    uncertainty,
)

_AvUCGS = functools.partial(
    uncertainty.AvUC, stop_gradient=True, name="avuc_gs"
)
# name -> (class, label in reports and figures)
_PRIMARY = {
    "nll": (likelihood.NLL, "NLL"),
    "focal": (likelihood.Focal, "Focal"),
    "mse": (likelihood.MSE, "MSE"),
    "dual_focal": (likelihood.DualFocal, "Dual focal"),
    "bsce_gra": (likelihood.BSCEGRA, "BSCE-GRA"),
}
_SECONDARY = {
    "sb_ece": (soft_bins.SBECE, "SB-ECE"),
    "s_avuc": (uncertainty.SoftAvUC, "S-AvUC"),
    "avuc": (uncertainty.AvUC, "AvUC"),
    "avuc_gs": (_AvUCGS, "AvUC-GS"),
    "mmce": (kernel.MMCE, "MMCE"),
    "sb_marginal_ece": (soft_bins.SBMarginalECE, "SB-marginal ECE"),
    "esd": (kernel.ESD, "ESD"),
    "mdca": (marginal.MDCA, "MDCA"),
    "dca": (marginal.DCA, "DCA"),
    "mbls": (margin.MbLS, "MbLS"),
    "acls": (margin.ACLS, "ACLS"),
}
_ALL = {**_PRIMARY, **_SECONDARY}
PRIMARY = {name: loss for name, (loss, _) in _PRIMARY.items()}
SECONDARY = {name: loss for name, (loss, _) in _SECONDARY.items()}
LABELS = {name: label for name, (_, label) in _ALL.items()}
_BY_NAME = {**PRIMARY, **SECONDARY}


def options(name):
    """Returns the options of a loss with their defaults.

    Args:
        name: A name of `PRIMARY` or `SECONDARY`.

    Returns:
        A dictionary, without the arguments that all losses have.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.options("s_avuc")
        {'threshold': 0.5, 'temperature': 0.1}
    """
    loss = _BY_NAME[checks.choice("name", name, tuple(_BY_NAME))]
    common = (*base.SHARED, "name", "reduction", "dtype")
    return {
        option: parameter.default
        for option, parameter in inspect.signature(loss).parameters.items()
        if option not in common
    }


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


def accepted(function, options):
    """The options without the shared ones that `function` does not have."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # Some C functions have no signature.
        parameters = ()
    return {
        name: value
        for name, value in options.items()
        if name in parameters or name not in base.SHARED
    }
