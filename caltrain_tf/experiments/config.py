"""All settings of a run, names of objectives, and tuned settings."""

import copy
import os

from ml_collections import config_dict

from caltrain_tf import checks, files, losses
from caltrain_tf.training.run_folder import flatten

INTERLEAVED = "-interleaved"
BEST = "best.json"
# Settings that are counts, and their smallest values.
_COUNTS = {
    "seed": 0,
    "batch_size": 1,
    "accumulate_steps": 1,
    "epochs": 0,
    "steps_per_execution": 1,
    "evaluate_every": 1,
    # If a checkpoint is damaged, the one before it is used.
    "keep_checkpoints": 2,
    "checkpoint_every_steps": 1,
}


def get_config():
    """Returns all settings of a run with their default values."""
    config = config_dict.ConfigDict()
    config.seed = 0
    # Also a name of `keras.applications`, or the path of a `.keras` file.
    config.model = "wrn-28-10"
    # A file whose weights training starts from.
    config.init_from = config_dict.placeholder(str)
    # Also "mixed_bfloat16" and "mixed_float16".
    config.precision = "float32"
    config.batch_size = 512
    # Micro-batches per optimizer step; the calibration loss sees one of them.
    config.accumulate_steps = 1
    config.epochs = 200

    config.data = config_dict.ConfigDict()
    config.data.name = "cifar10"
    # In the syntax of TensorFlow Datasets; the data set's own when not given.
    config.data.train_split = config_dict.placeholder(str)
    config.data.image_size = config_dict.placeholder(int)
    config.data.augment = True

    config.loss = config_dict.ConfigDict()
    config.loss.primary = "nll"
    config.loss.secondary = config_dict.placeholder(str)
    config.loss.beta = 1.0
    config.loss.cross_replica = True
    # Of any type: `lower` of SB-ECE is a number or "chance".
    config.loss.options = {
        name: {
            option: config_dict.FieldReference(value, field_type=object)
            for option, value in losses.options(name).items()
        }
        for name in (*losses.PRIMARY, *losses.SECONDARY)
    }

    config.interleaved = config_dict.ConfigDict()
    config.interleaved.enabled = False
    config.interleaved.held_out_fraction = 0.1

    config.optimizer = config_dict.ConfigDict()
    # For a batch of `reference_batch_size`; it grows with the batch.
    config.optimizer.learning_rate = 0.1
    config.optimizer.reference_batch_size = 128
    config.optimizer.warmup_epochs = 1
    config.optimizer.decay_epochs = (60, 120, 160)
    config.optimizer.decay_ratio = 0.2
    config.optimizer.momentum = 0.9
    config.optimizer.nesterov = True
    config.optimizer.l2 = 2e-4
    config.optimizer.l2_on = ()  # Empty: every trainable variable.
    config.optimizer.clip_norm = config_dict.placeholder(float)

    config.steps_per_execution = 50
    config.jit_compile = True
    config.evaluate_every = 5
    # "ts_nll": evaluate every epoch, and end with the weights of the epoch that
    # has the lowest loss on the calibration split after temperature scaling.
    config.best = config_dict.placeholder(str)
    config.keep_checkpoints = 3
    # Also inside epochs: for epochs that take longer than may be lost.
    config.checkpoint_every_steps = config_dict.placeholder(int)

    # What `baselines/tune.py` tries, one parameter after the other; those of a
    # secondary loss replace the others.
    config.search = config_dict.ConfigDict()
    config.search.threshold = (0.1, 0.3, 0.5, 0.7, 0.9)
    config.search.temperature = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    config.search.beta = (0.1, 0.3, 1.0, 3.0, 10.0)
    config.search.l2 = (1e-5, 5e-5, 1e-4, 2e-4, 5e-4)
    # MMCE is a square: on an over-confident network its gradient is a hundredth
    # of that of NLL.
    config.search.mmce = {"beta": (1.0, 10.0, 30.0, 100.0, 300.0)}
    return config


def load(folder):
    """Returns the configuration of a run's folder."""
    path = files.as_path(folder) / "config.json"
    config = files.read_json(path)
    if "loss" not in config:
        raise ValueError(f"{path} must be that of a run. Received: {config}")
    return config_dict.ConfigDict(config)


def find(path, *names):
    """Returns the folders at or below a path that contain the named files."""
    walked = files.as_path(path).walk()  # A bucket has no `rglob`.
    found = [folder for folder, _, there in walked if set(names) <= set(there)]
    return sorted(map(files.as_path, found))


def check(config):
    """Raises if a number of a configuration is out of range."""
    for name, low in _COUNTS.items():
        if config[name] is not None:
            checks.count(f"--config.{name}", config[name], low)
    if config.batch_size % config.accumulate_steps:
        raise ValueError(
            "--config.batch_size must be a multiple of "
            "--config.accumulate_steps. Received: "
            f"{config.batch_size} and {config.accumulate_steps}"
        )
    recipe = config.optimizer
    checks.number("--config.optimizer.l2", recipe.l2, low=0, closed=True)
    name = "--config.optimizer.reference_batch_size"
    checks.count(name, recipe.reference_batch_size)
    for epoch in recipe.decay_epochs:
        name = "--config.optimizer.decay_epochs"
        checks.number(name, epoch, low=0, closed=True)
    if config.interleaved.enabled and config.loss.secondary is None:
        raise ValueError("--interleaved needs --secondary, such as sb_ece.")
    if config.best is not None:
        checks.choice("--config.best", config.best, ("ts_nll",))


def override(config, settings):
    """Sets existing settings, by dotted keys, to values of the same type."""
    for key, value in settings.items():
        checks.choice("config", key, list(flatten(config)))
        try:
            config.update_from_flattened_dict({key: value})
        except TypeError as error:
            raise ValueError(f"config.{key}: {error}") from error


def objective(config):
    """Returns the objective of a configuration, such as `focal+sb_ece`."""
    name = config["loss"]["primary"]
    if config["loss"]["secondary"] is not None:
        name += f"+{config['loss']['secondary']}"
    return name + (INTERLEAVED if config["interleaved"]["enabled"] else "")


def split_objective(name):
    """Returns `(primary, secondary, interleaved)`; "" for no secondary loss."""
    pair, interleaved = name.removesuffix(INTERLEAVED), INTERLEAVED in name
    primary, _, secondary = pair.partition("+")
    return primary, secondary, interleaved


def set_objective(config, primary, secondary, interleaved):
    """Sets losses by the values of the flags; None leaves them as they are."""
    if primary is not None:
        checks.choice("primary", primary, list(losses.PRIMARY))
        config.loss.primary = primary
    if secondary is not None:
        checks.choice("secondary", secondary, ["none", *losses.SECONDARY])
        config.loss.secondary = None if secondary == "none" else secondary
    if interleaved is not None:
        config.interleaved.enabled = interleaved


def with_objective(config, name):
    """Returns a copy of a configuration with the losses of an objective."""
    config = copy.deepcopy(config)
    primary, secondary, interleaved = split_objective(name)
    set_objective(config, primary, secondary or "none", interleaved)
    return config


def expand_objectives(names, data):
    """Returns objectives; `paper` is those of the paper's table of results."""
    if list(names) != ["paper"]:
        return list(names)
    primaries = ["nll"] if data == "imagenet" else ["nll", "focal", "mse"]
    secondaries = ("", "+mmce", "+avuc", "+avuc_gs", "+sb_ece", "+s_avuc")
    names = [primary + other for primary in primaries for other in secondaries]
    # On CIFAR, NLL memorises the training set: the paper holds a part out.
    memorised = () if data == "imagenet" else ("nll+sb_ece", "nll+s_avuc")
    return [n + INTERLEAVED if n in memorised else n for n in names]


def read_tuned(path, data):
    """Returns tuned settings by objective, of a JSON file or of a folder."""
    path = files.as_path(path)
    paths = [f / BEST for f in find(path, BEST)] if path.is_dir() else [path]
    if not paths or not paths[0].exists():
        raise ValueError(
            f"--tuned must be a JSON file, or a folder that contains {BEST}. "
            f"Received: {os.fspath(path)!r}"
        )
    tuned = {}
    for file in paths:
        best = files.read_json(file)
        if "overrides" in best:
            if data != best.get("data"):
                raise ValueError(f"--tuned must be of {data!r}: {file} is not")
            best = {best["objective"]: best["overrides"]}
        if not all(isinstance(settings, dict) for settings in best.values()):
            raise ValueError(f"--tuned: {file} must hold settings by objective")
        if twice := sorted(tuned.keys() & best):
            raise ValueError(f"--tuned: {twice[0]} again in {file}")
        tuned |= best
    return tuned
