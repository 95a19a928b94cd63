"""Builds the parts of an experiment from its configuration.

Errors name the flags that set the configuration on the command line.
"""

import contextlib
import itertools

import keras
import ml_collections

from caltrain_tf import data, losses, metrics, models, training
from caltrain_tf.experiments.config import check_numbers

# Names in the logs are those of Uncertainty Baselines.
_NLL = "negative_log_likelihood"


def check(configs, data_dir=None):
    """Raises if runs cannot be built, without training them.

    Args:
        configs: Configurations of runs on the same data with the same network,
            as `ConfigDict`s or dictionaries.
        data_dir: The folder of TensorFlow Datasets.
    """
    configs = [ml_collections.ConfigDict(config) for config in configs]
    dataset = build_data(configs[0], data_dir)
    build_model(configs[0], dataset)
    for config in configs:
        check_numbers(config)
        build_loss(config)


def build_data(config, data_dir=None):
    """Returns the data set of `config.data` as uint8 pixels.

    The network of `build_model` normalises them.
    """
    with _named("--config.data"):
        return data.get(
            config.data.name,
            data_dir,
            train_split=config.data.train_split,
            image_size=config.data.image_size,
            # Missing in runs saved before this option existed.
            augment=config.data.get("augment", True),
            dtype="uint8",
        )


def build_loss(config, parts=("primary", "secondary")):
    """Returns the `CompositeLoss` of `config.loss`.

    Args:
        config: The configuration.
        parts: The parts to include. Interleaved training uses them separately.
    """
    settings = config.loss
    both = {part: _part(settings, part) for part in parts}
    with _named("--config.loss"):
        return losses.CompositeLoss(
            both.get("primary"),
            both.get("secondary"),
            beta=settings.beta,
            from_logits=True,
            cross_replica=settings.cross_replica,
        )


def build_trainer(config, strategy, dataset, steps_per_epoch):
    """Returns a `Trainer` with the model, optimizer and loss of a run.

    Args:
        config: The configuration.
        strategy: The `tf.distribute` strategy.
        dataset: The data from `build_data`.
        steps_per_epoch: Optimizer steps per epoch.
    """
    keras.utils.set_random_seed(config.seed)
    parts = ("primary", "secondary")
    if config.interleaved.enabled:
        parts = ("primary",)
    settings = config.optimizer
    scale = config.batch_size / settings.reference_batch_size
    with strategy.scope():
        model = build_model(config, dataset)
        # Missing in runs saved before this option existed.
        if config.get("init_from"):
            _start_from(model, config.init_from)
    with strategy.scope(), _named("--config.optimizer"):
        optimizer = keras.optimizers.SGD(
            training.WarmUpStepDecay(
                settings.learning_rate * scale,
                steps_per_epoch,
                settings.decay_ratio,
                settings.decay_epochs,
                settings.warmup_epochs,
            ),
            momentum=settings.momentum,
            nesterov=settings.nesterov,
        )
    loss = build_loss(config, parts)
    with _named("--config.optimizer"):
        return training.Trainer(
            model,
            loss,
            optimizer,
            strategy,
            metrics=[
                keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
                metrics.NegativeLogLikelihood(from_logits=True, name=_NLL),
                metrics.ExpectedCalibrationError(from_logits=True, name="ece"),
            ],
            l2=settings.l2,
            l2_on=tuple(settings.l2_on) or None,
            jit_compile=config.jit_compile,
            steps_per_execution=config.steps_per_execution,
            clip_norm=settings.clip_norm,
        )


def build_model(config, dataset):
    """Returns the network of `config.model`, in `config.precision`.

    Its inputs are uint8 pixels, which it normalises on its device.

    Args:
        config: The configuration.
        dataset: The data from `build_data`.
    """
    before = keras.config.dtype_policy()
    with _named("--config.precision"):
        keras.config.set_dtype_policy(config.precision)
    try:
        with _named("--config.model"):
            network = models.get(
                config.model,
                num_classes=dataset.num_classes,
                input_shape=dataset.image_shape,
            )
        pixels = keras.Input(dataset.image_shape, dtype="uint8", name="pixels")
        normalize = keras.layers.Rescaling(**dataset.rescaling, dtype="float32")
        outputs = network(normalize(pixels))
        return keras.Model(pixels, outputs, name=network.name)
    finally:
        keras.config.set_dtype_policy(before)


def _start_from(model, path):
    weights = models.load(path).get_weights()
    shapes = [weight.shape for weight in weights]
    expected = [tuple(weight.shape) for weight in model.weights]
    if shapes != expected:
        pairs = itertools.zip_longest(expected, shapes)
        wanted, there = next(pair for pair in pairs if pair[0] != pair[1])
        raise ValueError(
            "`init_from` must be a network with the weights of "
            f"{model.name!r}: {len(expected)} arrays. Received: {path}, which "
            f"has {len(shapes)}; the first that differs is of shape {there} "
            f"instead of {wanted}"
        )
    model.set_weights(weights)


def _part(settings, part):
    name = settings[part]
    if name is None:
        return None
    options = settings.options.get(name)
    if options is None:
        with _named(f"--config.loss.{part}"):
            return losses.get(name, from_logits=True)
    with _named(f"--config.loss.options.{name}"):
        return losses.get(name, from_logits=True, **options.to_dict())


@contextlib.contextmanager
def _named(flag):
    """Adds the name of a flag to errors about its value."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{flag}: {error}") from error
