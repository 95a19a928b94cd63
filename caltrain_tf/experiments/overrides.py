"""Settings of single objectives, such as tuned ones."""

import json
import os

from caltrain_tf.ops import options


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
        options.check_choice(name, key, keys)
        try:
            config.update_from_flattened_dict({key: value})
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"A setting of {name!r} does not fit: {error}. "
                f"Received: {key}={value!r}"
            ) from error


def read_tuned(path):
    """Reads the settings of single objectives.

    Args:
        path: A JSON file of an object from objectives to objects from dotted
            keys to values.

    Returns:
        That as a dictionary.
    """
    with open(os.fspath(path), encoding="utf-8") as file:
        try:
            tuned = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} must be JSON: {error}") from error
    _check(path, tuned)
    return tuned


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
