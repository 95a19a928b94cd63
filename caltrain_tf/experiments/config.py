"""Configurations of runs: objectives, the runs of a study, tuned settings.

Errors name the flags that set a configuration on the command line.
"""

import copy
import dataclasses
import difflib
import json
import os

import tensorflow as tf

from caltrain_tf import checks, files, losses

NONE = "none"
INTERLEAVED = "-interleaved"
BEST = "best.json"
# The losses that the paper combines; `losses.PRIMARY` and `losses.SECONDARY`
# have more.
PRIMARIES = ("nll", "focal", "mse")
SECONDARIES = (NONE, "mmce", "avuc", "avuc_gs", "sb_ece", "s_avuc")


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One run: its configuration, its folder and the devices that train it.

    Attributes:
        name: Name of the run on the terminal, such as `focal+sb_ece seed 0`.
        config: The whole configuration, of JSON types.
        folder: The run's folder, local or in a bucket.
        data_dir: The folder of TensorFlow Datasets.
        tpu: See `training.get_strategy`.
        num_gpus: See `training.get_strategy`.
        shift: Options of the shift benchmark from `shift.shift_options`; None
            to skip the benchmark.
    """

    name: str
    config: dict
    folder: str
    data_dir: str | None = None
    tpu: str | None = None
    num_gpus: int | None = None
    shift: dict | None = None


def cross(primaries=PRIMARIES, secondaries=SECONDARIES):
    """Returns the names of all pairs of a primary and a secondary loss.

    Args:
        primaries: Names of primary losses.
        secondaries: Names of secondary losses; `"none"` stands for the primary
            loss alone.

    Example:
        >>> cross(["nll", "focal"], ["none", "sb_ece"])
        ['nll', 'nll+sb_ece', 'focal', 'focal+sb_ece']
    """
    for name in primaries:
        checks.choice("primaries", name, list(losses.PRIMARY))
    for name in secondaries:
        checks.choice("secondaries", name, [NONE, *losses.SECONDARY])
    return [
        primary if secondary == NONE else f"{primary}+{secondary}"
        for primary in primaries
        for secondary in secondaries
    ]


def run_name(config):
    """Returns the objective of a configuration, such as `focal+sb_ece`.

    Args:
        config: The configuration, as a `ConfigDict` or a dictionary.
    """
    name = config["loss"]["primary"]
    if config["loss"]["secondary"] is not None:
        name += f"+{config['loss']['secondary']}"
    return name + (INTERLEAVED if config["interleaved"]["enabled"] else "")


def parse_objective(name):
    """Parses the name of an objective.

    Args:
        name: A name as returned by `run_name`.

    Returns:
        `(primary, secondary, interleaved)`; the secondary loss may be None.

    Example:
        >>> parse_objective("nll+s_avuc-interleaved")
        ('nll', 's_avuc', True)
    """
    pairs = [
        f"{primary}+{secondary}"
        for primary in losses.PRIMARY
        for secondary in losses.SECONDARY
    ]
    known = [*losses.PRIMARY, *pairs, *(pair + INTERLEAVED for pair in pairs)]
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
        raise ValueError(
            "`objectives` must be <primary>, <primary>+<secondary> or "
            f"<primary>+<secondary>{INTERLEAVED}, with a primary loss of "
            f"{', '.join(losses.PRIMARY)} and a secondary loss of "
            f"{', '.join(losses.SECONDARY)}. Did you mean {near[0]!r}? "
            f"Received: {name!r}"
        )
    primary, _, secondary = name.removesuffix(INTERLEAVED).partition("+")
    return primary, secondary or None, name.endswith(INTERLEAVED)


def study_runs(config, objectives, seeds, output_dir, tuned=None, **options):
    """Returns the runs of a study, seed after seed.

    All objectives of the first seed come first, so that a study that is stopped
    early still compares all of them.

    Args:
        config: The configuration that the runs share, as in `configs/`.
        objectives: Names of objectives.
        seeds: Integers.
        output_dir: The study's folder; runs are in `<objective>/seed<k>`.
        tuned: Settings of individual objectives: a dictionary from objectives
            to dictionaries from dotted keys to values. It may include
            objectives that are not run.
        **options: Further attributes of all runs, such as `data_dir`.

    Returns:
        A list of `Run`.
    """
    tuned = {} if tuned is None else tuned
    for name in tuned:
        parse_objective(name)
    configs = {
        name: _objective_config(config, name, tuned.get(name, {}))
        for name in objectives
    }
    for what, values in (("objectives", objectives), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"`{what}` must be at least one, and each only once. "
                f"Received: {what}={list(values)}"
            )
    for seed in seeds:
        checks.count("seed", seed, low=0)
    return [
        Run(
            f"{name} seed {seed}",
            {**configs[name], "seed": seed},
            os.path.join(output_dir, name, f"seed{seed}"),
            **options,
        )
        for seed in seeds
        for name in objectives
    ]


def apply_overrides(config, overrides, name="config"):
    """Sets existing keys of a configuration to values of the same type.

    Args:
        config: The configuration, which is modified.
        overrides: A dictionary from dotted keys to values.
        name: Name of the settings in error messages.

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
    keys = list(leaf_types(config))
    for key, value in overrides.items():
        checks.choice(name, key, keys)
        try:
            config.update_from_flattened_dict({key: value})
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"A setting of {name!r} does not fit: {error}. "
                f"Received: {key}={value!r}"
            ) from error


def leaf_types(config, prefix=""):
    """Returns the types of all settings by their dotted keys.

    Args:
        config: A `ConfigDict`.
        prefix: Prefix of the keys.
    """
    types = {}
    for key in config:
        if hasattr(config[key], "keys"):
            types |= leaf_types(config[key], f"{prefix}{key}.")
        else:
            types[f"{prefix}{key}"] = config.get_type(key)
    return types


def read_tuned(path, data_name=None):
    """Reads the settings of individual objectives.

    Args:
        path: A JSON file with an object from objectives to objects from dotted
            keys to values; or the `best.json` of a tuning; or a folder that
            contains `best.json` files, at any depth.
        data_name: The data set on which a tuning must have been done; any if
            None.

    Returns:
        A dictionary from objectives to dictionaries from dotted keys to values.
    """
    path = os.fspath(path)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            "`tuned` must be a JSON file, or a folder of tunings. "
            f"Received: {path!r}, which does not exist"
        )
    if not tf.io.gfile.isdir(path):
        return _read_tuned_file(path, data_name)
    found, tuned = {}, {}
    for folder, _, names in sorted(tf.io.gfile.walk(path)):
        if BEST not in names:
            continue
        best = os.path.join(folder, BEST)
        for objective, settings in _read_tuned_file(best, data_name).items():
            if objective in tuned:
                raise ValueError(
                    f"{path} must hold one tuning of an objective. Received: "
                    f"{found[objective]} and {best} of {objective!r}"
                )
            found[objective], tuned[objective] = best, settings
    if not tuned:
        raise ValueError(f"A folder must hold {BEST}. Received: {path!r}")
    return tuned


def check_numbers(config):
    """Raises if a number of a configuration is out of range."""
    for name in (
        "batch_size",
        "epochs",
        "steps_per_execution",
        "evaluate_every",
        "optimizer.reference_batch_size",
    ):
        value = config
        for key in name.split("."):
            value = value[key]
        checks.count(f"--config.{name}", value)
    # If a checkpoint is damaged, the one before it is used.
    checks.count("--config.keep_checkpoints", config.keep_checkpoints, low=2)
    # Missing in runs saved before this option existed.
    every = config.get("checkpoint_every_steps")
    if every is not None:
        checks.count("--config.checkpoint_every_steps", every)
    fraction = config.interleaved.held_out_fraction
    checks.number(
        "--config.interleaved.held_out_fraction", fraction, low=0, high=1
    )


def check_batch_size(config, strategy):
    """Raises if the replicas of a strategy cannot share a batch equally."""
    replicas = strategy.num_replicas_in_sync
    if config.batch_size % replicas:
        raise ValueError(
            "--config.batch_size must be a multiple of the number of replicas, "
            f"{replicas}. Received: {config.batch_size}"
        )


def _objective_config(config, name, overrides):
    config = copy.deepcopy(config)
    primary, secondary, interleaved = parse_objective(name)
    config.loss.primary = primary
    config.loss.secondary = secondary
    config.interleaved.enabled = interleaved
    apply_overrides(config, overrides, name)
    if run_name(config) != name or "seed" in overrides:
        raise ValueError(
            "Settings of an objective must leave its losses and the seed as "
            f"they are. Received: {overrides} for {name!r}"
        )
    return config.to_dict()


def _read_tuned_file(path, data_name):
    try:
        tuned = json.loads(files.as_path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    if isinstance(tuned, dict) and "overrides" in tuned:
        if data_name not in (None, tuned["data"]):
            raise ValueError(
                f"{path} must be a tuning on {data_name!r}. "
                f"Received: {tuned['data']!r}"
            )
        tuned = {tuned["objective"]: tuned["overrides"]}
    is_right = isinstance(tuned, dict) and all(
        isinstance(settings, dict) for settings in tuned.values()
    )
    if not is_right:
        raise ValueError(
            f"{path} must be an object from objectives to objects from keys "
            'to values, such as {"focal+sb_ece": {"loss.beta": 0.3}}. '
            f"Received: {tuned!r}"
        )
    return tuned
