"""Which runs may be compared: what their configurations share."""

import json

# What objectives differ by, and what changes nothing that is trained.
_OF_THE_OBJECTIVE = ("seed", "loss", "interleaved", "optimizer.l2")
_WITHOUT_EFFECT = (
    "checkpoint_every_steps",
    "evaluate_every",
    "keep_checkpoints",
    "search",
)


def setting_names(configs):
    """Names the setting of every run.

    A setting is everything of a configuration except the seed, the objective
    with its hyperparameters (`loss`, `interleaved`, `optimizer.l2`), and what
    has no effect on the trained network (`evaluate_every`,
    `keep_checkpoints`, `search`).

    Args:
        configs: Configurations, dictionaries.

    Returns:
        A text a configuration, the same for those that share a setting: data
        set, network, training split, epochs and batch size, and where other
        settings share these, what else it differs by.

    Example:
        >>> config = {
        ...     "seed": 0,
        ...     "model": "wrn-10-1",
        ...     "epochs": 60,
        ...     "batch_size": 128,
        ...     "data": {"name": "cifar10", "train_split": "train[:2000]"},
        ...     "loss": {"primary": "nll"},
        ...     "optimizer": {"momentum": 0.9, "l2": 1e-4},
        ... }
        >>> other = {**config, "optimizer": {"momentum": 0.8, "l2": 2e-4}}
        >>> setting_names([config, {**config, "seed": 1}])[0]
        'cifar10 wrn-10-1 train[:2000] 60 epochs batch 128'
        >>> setting_names([config, other])[1]
        'cifar10 wrn-10-1 train[:2000] 60 epochs batch 128,
         optimizer.momentum 0.8'
    """
    shared = [_shared(config) for config in configs]
    names = [_short_name(config) for config in configs]
    texts = []
    for name, settings in zip(names, shared, strict=True):
        alike = [s for n, s in zip(names, shared, strict=True) if n == name]
        keys = sorted({key for other in alike for key in other})
        differing = [
            key for key in keys if len({s.get(key) for s in alike}) > 1
        ]
        texts.append(
            ", ".join(
                [
                    name,
                    *(f"{k} {settings.get(k, 'absent')}" for k in differing),
                ]
            )
        )
    return texts


def hyperparameters(config):
    """What the objective of a run was trained with, as a text.

    Example:
        >>> hyperparameters(
        ...     {
        ...         "loss": {
        ...             "primary": "focal",
        ...             "secondary": "mmce",
        ...             "beta": 2.0,
        ...             "options": {"focal": {"gamma": 3.0}, "mmce": {}},
        ...         },
        ...         "interleaved": {"enabled": False},
        ...         "optimizer": {"l2": 0.0002},
        ...     }
        ... )
        'focal.gamma 3.0, beta 2.0, l2 0.0002'
    """
    loss = config["loss"]
    parts = [loss["primary"], loss.get("secondary")]
    options = loss.get("options", {})
    values = {
        f"{part}.{key}": value
        for part in parts
        if part is not None
        for key, value in options.get(part, {}).items()
        if value is not None
    }
    if parts[1] is not None:
        values["beta"] = loss.get("beta")
    if config["interleaved"]["enabled"]:
        values["held out"] = config["interleaved"].get("held_out_fraction")
    values["l2"] = config.get("optimizer", {}).get("l2")
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _short_name(config):
    data = config["data"]
    words = [data["name"], config["model"], data.get("train_split")]
    words += [f"{config['epochs']} epochs", f"batch {config['batch_size']}"]
    return " ".join(word for word in words if word is not None)


def _shared(config):
    return {
        key: value
        for key, value in _flat(config).items()
        if not any(
            key == name or key.startswith(f"{name}.")
            for name in _OF_THE_OBJECTIVE + _WITHOUT_EFFECT
        )
    }


def _flat(config, prefix=""):
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value)
    return flat
