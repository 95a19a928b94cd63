"""Settings of single objectives, such as tuned ones."""

import json
import os

from caltrain_tf import checks

BEST = "best.json"


def apply_overrides(config, overrides, name="config"):
    """Sets keys of a configuration, which must be there and of that type.

    Args:
        config: The configuration; it is changed.
        overrides: A dictionary from dotted keys to values.
        name: What the settings are of, for the error.

    Example:
        >>> import ml_collections
        >>> config = ml_collections.ConfigDict({"loss": {"beta": 1.0}})
        >>> apply_overrides(config, {"loss.beta": 0.3})
        >>> config.loss.beta
        0.3
        >>> apply_overrides(config, {"loss.betta": 0.3}, "focal+sb_ece")
        Traceback (most recent call last):
        ...
        ValueError: `focal+sb_ece` must be one of 'loss.beta'. Did you mean...
    """
    keys = list(_leaves(config))
    for key, value in overrides.items():
        checks.check_choice(name, key, keys)
        try:
            config.update_from_flattened_dict({key: value})
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"A setting of {name!r} does not fit: {error}. "
                f"Received: {key}={value!r}"
            ) from error


def read_tuned(path, data_name=None):
    """Reads the settings of single objectives.

    Args:
        path: A JSON file of an object from objectives to objects from dotted
            keys to values; or the `best.json` of a tuning; or a folder that
            holds such, at any depth.
        data_name: The data set that a tuning must be of; any if None.

    Returns:
        A dictionary from objectives to dictionaries from dotted keys to values.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise ValueError(
            "`tuned` must be a JSON file, or a folder of tunings. "
            f"Received: {path!r}, which is not there"
        )
    if not os.path.isdir(path):
        tuned = _read_json(path)
        if isinstance(tuned, dict) and "overrides" in tuned:
            tuned = _of_tuning(path, tuned, data_name)
        _check(path, tuned)
        return tuned
    found, tuned = {}, {}
    for folder, _, files in sorted(os.walk(path)):
        if BEST not in files:
            continue
        best = os.path.join(folder, BEST)
        for objective, settings in read_tuned(best, data_name).items():
            if objective in tuned:
                raise ValueError(
                    f"{path} must hold one tuning of an objective. Received: "
                    f"{found[objective]} and {best} of {objective!r}"
                )
            found[objective], tuned[objective] = best, settings
    if not tuned:
        raise ValueError(f"A folder must hold {BEST}. Received: {path!r}")
    return tuned


def _read_json(path):
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} must be JSON: {error}") from error


def _of_tuning(path, best, data_name):
    if data_name is not None and best["data"] != data_name:
        raise ValueError(
            f"{path} must be a tuning on {data_name!r}. "
            f"Received: {best['data']!r}"
        )
    return {best["objective"]: best["overrides"]}


def _check(path, tuned):
    is_right = isinstance(tuned, dict) and all(
        isinstance(settings, dict) for settings in tuned.values()
    )
    if not is_right:
        raise ValueError(
            f"{path} must be an object from objectives to objects from keys "
            'to values, such as {"focal+sb_ece": {"loss.beta": 0.3}}. '
            f"Received: {tuned!r}"
        )


def _leaves(config, prefix=""):
    for key in config:
        value = config[key]
        if hasattr(value, "to_dict"):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
