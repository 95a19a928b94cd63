"""What there is to tune of an objective."""

import dataclasses
import math

from caltrain_tf import data
from caltrain_tf.checks import check_number
from caltrain_tf.experiments.other_parameters import other_values


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A setting that is tuned.

    Attributes:
        name: As in `config.search`: `threshold`, `temperature`, `beta`, `l2`;
            of others, the end of the path.
        path: Where it is in the configuration, `loss.beta`.
        values: Those to try, in their order.
        default: The configuration's own value; None where it leaves it open.
    """

    name: str
    path: str
    values: tuple
    default: bool | float | str | None

    @property
    def is_number(self):
        """Whether there is something between its values."""
        return not any(isinstance(value, bool | str) for value in self.values)

    @property
    def is_log(self):
        """Whether it is of a scale of ratios; thresholds are shares."""
        return self.name != "threshold" and min(self.values) > 0


def search_space(config, others=()):
    """Returns the parameters to tune, in the paper's order.

    First the secondary loss's threshold, then its temperature, where it has
    them, then its weight, then the weight decay. `config.search` has the values
    to try; a parameter whose values are `()` is not tuned. AvUC's threshold is
    an entropy in nats: the values count as shares of log K, the largest
    entropy of K classes.

    Args:
        config: The configuration, as of `configs/`.
        others: Other settings to tune after these, texts of the form
            `batch_size=64,256`.

    Returns:
        A list of `Parameter`.
    """
    secondary = config.loss.secondary
    options = {}
    if secondary is not None:
        # A name without options is one that `losses.get` has an error for.
        options = config.loss.options.get(secondary) or {}
    paths = {
        name: f"loss.options.{secondary}.{name}"
        for name in ("threshold", "temperature")
        if name in options
    }
    if secondary is not None:
        paths["beta"] = "loss.beta"
    paths["l2"] = "optimizer.l2"
    unit = 1.0
    if secondary in ("avuc", "avuc_gs"):
        unit = math.log(data.SPECS[config.data.name].num_classes)
    space = []
    for name, path in paths.items():
        values = config.search[name]
        for value in values:
            check_number(f"search.{name}", value, low=0.0, closed=True)
        if name == "threshold" and unit != 1.0:
            values = [round(value * unit, 4) for value in values]
        if len(values):
            default = get_path(config, path)
            values = tuple(dict.fromkeys(map(float, values)))
            space.append(Parameter(name, path, values, default))
    for path, values in other_values(config, others).items():
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
            f"{tuple(paths)}. Received: search={config.search.to_dict()}"
        )
    return space


def get_path(config, path):
    """Returns the setting at a path such as `loss.beta`."""
    for key in path.split("."):
        config = config[key]
    return config


def with_params(config, space, params):
    """Returns the configuration of a trial: with its values, without `search`.

    What else would have been tried is not part of a run, and may change.

    Args:
        config: The configuration; it is left as it is.
        space: Of `search_space`.
        params: Values by name.
    """
    config = config.copy_and_resolve_references()
    with config.unlocked():
        del config.search
        for parameter in space:
            config.update_from_flattened_dict(
                {parameter.path: params[parameter.name]}
            )
    return config


def fingerprint(config, space):
    """Returns what all trials of a study share, as flat JSON types.

    Args:
        config: The configuration.
        space: Of `search_space`.
    """
    tuned = {parameter.path for parameter in space}
    flat = _flat(config.to_dict())
    return {
        key: value
        for key, value in flat.items()
        if key not in tuned and not key.startswith("search.")
    }


def trial_name(params):
    """Returns what the folder of a trial is called.

    Example:
        >>> trial_name({"beta": 1.0, "l2": 0.0002, "binning": "bin"})
        'beta=1.0_l2=0.0002_binning=bin'
    """
    return "_".join(f"{name}={value}" for name, value in params.items())


def as_flags(space, params):
    """Returns parameters as flags of the training scripts."""
    return " ".join(f"--config.{p.path}={params[p.name]}" for p in space)


def _flat(tree, prefix=""):
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = list(value) if type(value) is tuple else value
    return flat
