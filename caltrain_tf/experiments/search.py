"""The search space of tuning: parameters of an objective and their values."""

import dataclasses
import difflib
import math

from caltrain_tf import checks
from caltrain_tf.experiments import build
from caltrain_tf.experiments.config import (
    apply_overrides,
    check_numbers,
    leaf_types,
)

# The paper tunes these options of a loss first.
_FIRST = ("threshold", "temperature")
# Losses whose thresholds are entropies in nats.
_IN_NATS = ("avuc", "avuc_gs")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A setting that is tuned.

    Attributes:
        name: As in `config.search`: `threshold`, `temperature`, `beta`, `l2`;
            for other settings, the last part of the path.
        path: Path in the configuration, such as `loss.beta`.
        values: The values to try, in this order.
        default: The value in the configuration; None if it has none.
    """

    name: str
    path: str
    values: tuple
    default: bool | float | str | None

    @property
    def is_number(self):
        """Whether the values are numbers, so that others lie between them."""
        return not any(isinstance(value, bool | str) for value in self.values)

    @property
    def is_log(self):
        """Whether to search on a log scale; thresholds never are."""
        return (
            self.is_number and self.name != "threshold" and min(self.values) > 0
        )


def search_space(config, others=(), data_dir=None):
    """Returns the parameters to tune, in the paper's order.

    The order is: the threshold of the secondary loss, its temperature, its
    other options, the options of the primary loss, the weight beta of the
    secondary loss, and the weight decay l2. `config.search` holds the values to
    try; parameters that it does not name or has no values for are not tuned,
    and options that neither loss has are ignored. The threshold of AvUC is an
    entropy in nats: its values are multiplied by log K, the largest entropy of
    K classes.

    Args:
        config: The configuration, as in `configs/`.
        others: Other settings to tune after these, texts of the form
            `batch_size=64,256`.
        data_dir: The folder of TensorFlow Datasets, needed to look up K.

    Returns:
        A list of `Parameter`.
    """
    search = config.get("search") or {}
    paths = _paths(config, search)
    space = []
    for name, path in paths.items():
        if not len(search[name]):
            continue
        values = _read_values(name, search[name], get_path(config, path))
        if name == "threshold" and config.loss.secondary in _IN_NATS:
            num_classes = build.build_data(config, data_dir).num_classes
            unit = math.log(num_classes)
            values = tuple(round(value * unit, 4) for value in values)
        space.append(Parameter(name, path, values, get_path(config, path)))
    for path, values in _other_values(config, others).items():
        if path in paths.values():
            raise ValueError(
                f"{path!r} is tuned by the values of `config.search`. "
                f"Received: others={list(others)}"
            )
        name = path.rsplit(".", 1)[-1]
        if name in (parameter.name for parameter in space):
            name = path
        space.append(Parameter(name, path, values, get_path(config, path)))
    if not space:
        raise ValueError(
            "`search` must have values to try for one of "
            f"{tuple(paths)}. Received: search={dict(search)}"
        )
    _check_values(config, space)
    return space


def get_path(config, path):
    """Returns the setting at a path such as `loss.beta`."""
    for key in path.split("."):
        config = config[key]
    return config


def with_params(config, space, params):
    """Returns the configuration of a trial: with its values, without `search`.

    The other values of the search do not belong to the run, and may change.

    Args:
        config: The configuration, which is not modified.
        space: The parameters from `search_space`.
        params: Values by name.
    """
    config = config.copy_and_resolve_references()
    with config.unlocked():
        if "search" in config:
            del config.search
        for parameter in space:
            config.update_from_flattened_dict(
                {parameter.path: params[parameter.name]}
            )
    return config


def trial_name(params):
    """Returns the name of a trial and of its folder.

    Example:
        >>> trial_name({"beta": 1.0, "l2": 0.0002, "binning": "bin"})
        'beta=1.0_l2=0.0002_binning=bin'
    """
    text = "_".join(f"{name}={value}" for name, value in params.items())
    return text.replace("/", "-")


def _paths(config, search):
    """Returns the paths of the parameters by name, in the paper's order."""
    options = config.loss.options
    names = {name for loss in options for name in options[loss]}
    for name in search:
        checks.choice("search", name, sorted({*names, "beta", "l2"}))
    paths = {}
    for loss in filter(None, (config.loss.secondary, config.loss.primary)):
        # A name without options may be unknown; `losses.get` raises later.
        own = options.get(loss) or {}
        first = [name for name in _FIRST if name in own]
        for name in dict.fromkeys([*first, *own]):
            if name in search:
                paths.setdefault(name, f"loss.options.{loss}.{name}")
    if config.loss.secondary is not None and "beta" in search:
        paths["beta"] = "loss.beta"
    if "l2" in search:
        paths["l2"] = "optimizer.l2"
    return paths


def _read_values(name, values, own):
    """Returns the distinct values to try, in the type of the own value."""
    read = []
    for value in values:
        if not isinstance(value, bool | str):
            checks.number(f"search.{name}", value, low=0.0, closed=True)
            is_whole = type(own) is int and value == int(value)
            value = int(value) if is_whole else float(value)
        read.append(value)
    return tuple(dict.fromkeys(read))


def _other_values(config, texts):
    """Returns tuples of values by path for texts like `batch_size=64,256`."""
    types = {
        path: kind
        for path, kind in leaf_types(config).items()
        if kind in _READERS
    }
    found = {}
    for text in texts:
        path, _, values = text.partition("=")
        if path not in types:
            near = difflib.get_close_matches(path, types, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                "`also` must be one number or word of the "
                f"configuration.{hint} Received: {text!r}"
            )
        try:
            read = map(_READERS[types[path]], values.split(","))
            found[path] = tuple(dict.fromkeys(read))
        except ValueError as error:
            raise ValueError(
                f"The values of {path!r} must be of type "
                f"{types[path].__name__}, separated by commas. "
                f"Received: {text!r}"
            ) from error
    return found


def _read_bool(text):
    if text not in ("True", "False"):
        raise ValueError(text)
    return text == "True"


def _read_word(text):
    if not text:
        raise ValueError(text)
    return text


_READERS = {bool: _read_bool, int: int, float: float, str: _read_word}


def _check_values(config, space):
    """Raises if a value is invalid, before any run starts."""
    for parameter in space:
        for value in parameter.values:
            changed = config.copy_and_resolve_references()
            apply_overrides(changed, {parameter.path: value}, "search")
            check_numbers(changed)
            build.build_loss(changed)
