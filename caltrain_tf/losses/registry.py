"""Losses by name; flags, configurations, reports and figures read it."""

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

_GS = functools.partial(uncertainty.AvUC, stop_gradient=True, name="avuc_gs")
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
    "avuc_gs": (_GS, "AvUC-GS"),
    "mmce": (kernel.MMCE, "MMCE"),
    "sb_marginal_ece": (soft_bins.SBMarginalECE, "SB-marginal ECE"),
    "esd": (kernel.ESD, "ESD"),
    "mdca": (marginal.MDCA, "MDCA"),
    "dca": (marginal.DCA, "DCA"),
    "mbls": (margin.MbLS, "MbLS"),
    "acls": (margin.ACLS, "ACLS"),
}
PRIMARY = {name: loss for name, (loss, _) in _PRIMARY.items()}
SECONDARY = {name: loss for name, (loss, _) in _SECONDARY.items()}
LABELS = {k: label for k, (_, label) in {**_PRIMARY, **_SECONDARY}.items()}
_BY_NAME = {**PRIMARY, **SECONDARY}


def options(name):
    """Returns the options that not all losses have, with their defaults.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.options("s_avuc")
        {'threshold': 0.5, 'temperature': 0.1}
    """
    name = checks.choice("name", name, tuple(_BY_NAME))
    return _BY_NAME[name](from_logits=True).options


def get(identifier, **options):
    """Returns the loss that `identifier` stands for.

    Args:
        identifier: A name such as `"sb_ece"`; a dict of such a name and options
            of the loss; the result of `keras.losses.serialize`; a `Loss` or a
            function, which is returned unchanged; or anything else that
            `keras.losses.get` knows.
        **options: Options of the loss that the name or config does not set.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.get("sb_ece", num_bins=10).num_bins
        10
        >>> ct.losses.get({"name": "s_avuc", "threshold": 0.3}).threshold
        0.3
    """
    return find("identifier", identifier, options)


def find(argument, identifier, options):
    """The loss that an argument stands for, as in `get`."""
    # `ml_collections.ConfigDict` is not a `Mapping`.
    if isinstance(identifier, Mapping) or hasattr(identifier, "to_dict"):
        config = dict(identifier)
        if "class_name" in config:
            return keras.losses.deserialize(config)
        name = checks.choice("name", config.get("name"), tuple(_BY_NAME))
        return _BY_NAME[name](**{**options, **config})
    if isinstance(identifier, str):
        if identifier in _BY_NAME:
            return _BY_NAME[identifier](**options)
        try:
            found = keras.losses.get(identifier)
        except ValueError:
            checks.choice(argument, identifier, tuple(_BY_NAME))
        # Keras gives a loss its default options.
        is_loss = isinstance(found, keras.losses.Loss)
        identifier = type(found) if is_loss else found
    if inspect.isclass(identifier):
        return identifier(**accepted(identifier, options))
    if callable(identifier):
        return identifier
    raise ValueError(
        f"`{argument}` must be a name, a config, a `keras.losses.Loss` or a "
        f"function. Received: {argument}={identifier!r}"
    )


def accepted(function, options):
    """The options without the shared ones that `function` does not have."""
    missing = set(base.SHARED) - set(inspect.signature(function).parameters)
    return {k: value for k, value in options.items() if k not in missing}
