"""The parts of an experiment, built from its configuration."""

import keras
import ml_collections

from caltrain_tf import callbacks, losses, metrics, models, training
from caltrain_tf import data as data_room
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments import uncertainty_baselines

# Networks that have such layers take pixels of 0 to 255.
_RESCALING = (keras.layers.Rescaling, keras.layers.Normalization)


def data(config, data_dir=None):
    """Returns the data set as uint8 pixels, which the network normalises."""
    return data_room.get(
        config.data.name,
        data_dir,
        train_split=config.data.train_split,
        image_size=config.data.image_size,
        augment=config.data.augment,
        dtype="uint8",
    )


def training_input(config, dataset):
    """Returns the arguments of `Trainer.fit` for the training set."""
    batch_size = _micro_batch(config)
    parts, arguments = {"dataset": dataset}, {}
    if config.interleaved.enabled:
        fraction = config.interleaved.held_out_fraction
        parts["dataset"], parts["held_out"] = dataset.interleaved(fraction)
        arguments["calibration_loss"] = loss(config, ["secondary"])
    for name, part in parts.items():
        arguments[name] = part.train_input(batch_size, seed=config.seed)
        arguments[f"{name}_steps"] = part.steps_per_epoch(batch_size)
    return arguments


def evaluation_input(config, dataset):
    """Returns the splits that are evaluated, by name."""
    batch_size, splits = _micro_batch(config), ("calibration", "test")
    return {split: dataset.eval_input(split, batch_size) for split in splits}


def training_images(config, dataset):
    """Returns at most 50,000 training images as they are, for the train ECE."""
    if not config.epochs:  # There may be no training set.
        return {}
    size = _micro_batch(config)
    batches = dataset.eval_input("train", size)
    return {"train": first(batches, max(1, 50_000 // size))}


def first(batches, count):
    """Returns an input of the first global batches."""

    def build_input(context):
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        return batches(context).take(replicas * count)

    return build_input


def model(config, dataset, init_from=None):
    """Returns the network, which takes uint8 pixels and returns logits."""
    keras.utils.set_random_seed(config.seed)
    before, shape = keras.config.dtype_policy(), dataset.image_shape
    keras.config.set_dtype_policy(config.precision)
    try:
        options = {"num_classes": dataset.num_classes, "input_shape": shape}
        inner = network = models.get(config.model, **options)
        if len(shape) == 3:
            rescaling = dataset.rescaling
            # Also where the network is built again for a finished run.
            if uncertainty_baselines.is_checkpoint(config.init_from):
                rescaling = uncertainty_baselines.rescaling(dataset)
            if any(isinstance(layer, _RESCALING) for layer in inner.layers):
                rescaling = {"scale": 1.0}
            pixels = keras.Input(shape, dtype="uint8", name="pixels")
            normalize = keras.layers.Rescaling(**rescaling, dtype="float32")
            outputs = network(normalize(pixels))
            network = keras.Model(pixels, outputs, name=network.name)
    finally:
        keras.config.set_dtype_policy(before)
    if uncertainty_baselines.is_checkpoint(init_from):
        uncertainty_baselines.load_weights(inner, init_from)
    elif init_from is not None:
        weights = models.load(init_from).get_weights()
        try:
            network.set_weights(weights)
        except ValueError as error:
            raise ValueError(
                "--init_from must hold the weights of the network. "
                f"Received: {init_from}, where {error}"
            ) from error
    return network


def loss(config, parts=None):
    """Returns the `CompositeLoss` of an epoch, or of the named parts."""
    if parts is None:
        interleaved = config.interleaved.enabled
        parts = ["primary"] if interleaved else ["primary", "secondary"]
    both = dict.fromkeys(("primary", "secondary"))
    for part in filter(config.loss.get, parts):
        name = config.loss[part]
        # A loss of Keras has no options here.
        options = dict(config.loss.options.get(name, {}))
        both[part] = losses.get(name, from_logits=True, **options)
    return losses.CompositeLoss(
        **both,
        beta=config.loss.beta,
        from_logits=True,
        cross_replica=config.loss.cross_replica,
    )


def optimizer(config, batches):
    """Returns SGD with the warm-up and step decay of Uncertainty Baselines."""
    steps = batches["dataset_steps"] + batches.get("held_out_steps", 0)
    recipe, accumulate = config.optimizer, config.accumulate_steps
    scale = config.batch_size / recipe.reference_batch_size
    times = recipe.decay_ratio, recipe.decay_epochs, recipe.warmup_epochs
    sgd = keras.optimizers.SGD(
        training.WarmUpStepDecay(recipe.learning_rate * scale, steps, *times),
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        gradient_accumulation_steps=accumulate if accumulate > 1 else None,
    )
    if config.precision == "mixed_float16":
        # Small gradients would be 0 in float16.
        return keras.optimizers.LossScaleOptimizer(sgd)
    return sgd


def trainer(config, network, objective, sgd, strategy):
    """Returns the `Trainer`; its metrics have Uncertainty Baselines' names."""
    replicas = strategy.num_replicas_in_sync
    if _micro_batch(config) % replicas:
        raise ValueError(
            "--config.batch_size / --config.accumulate_steps must be a "
            f"multiple of the number of replicas, {replicas}. "
            f"Received: {config.batch_size} / {config.accumulate_steps}"
        )
    return training.Trainer(
        network,
        objective,
        sgd,
        strategy,
        metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            metrics.NegativeLogLikelihood(
                from_logits=True, name="negative_log_likelihood"
            ),
            metrics.ExpectedCalibrationError(from_logits=True, name="ece"),
        ],
        l2=config.optimizer.l2,
        l2_on=tuple(config.optimizer.l2_on) or None,
        clip_norm=config.optimizer.clip_norm,
        jit_compile=config.jit_compile,
        steps_per_execution=config.steps_per_execution,
    )


def copy_of(network, config, dataset):
    """Returns a copy of a network that may be distributed over devices."""
    copy = model(config, dataset)
    copy.set_weights(network.get_weights())
    return copy


def fit_options(config):
    """Returns the arguments of `Trainer.fit` that are settings."""
    options = {
        "epochs": config.epochs,
        "evaluate_every": config.evaluate_every,
        "keep": config.keep_checkpoints,
        "checkpoint_every_steps": config.checkpoint_every_steps,
    }
    if config.best is not None:
        options["evaluate_every"] = 1  # The best epoch may be any.
        options["measures"] = {"calibration": callbacks.temperature_scaled_nll}
        options["best"] = f"calibration/{config.best}"
    return options


def check(configs, data_dir=None):
    """Raises if runs on the same data with the same network cannot be built."""
    configs = [ml_collections.ConfigDict(config) for config in configs]
    model(configs[0], data(configs[0], data_dir))
    for config in configs:
        settings.check(config)
        loss(config)


def _micro_batch(config):
    return config.batch_size // config.accumulate_steps
