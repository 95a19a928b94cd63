"""The parts of an experiment, as its configuration describes them."""

import keras

from caltrain_tf import data
from caltrain_tf import losses
from caltrain_tf import metrics
from caltrain_tf import models
from caltrain_tf import training

# Names in the logs are those of Uncertainty Baselines.
_NLL = "negative_log_likelihood"


def build_data(config, data_dir=None):
    """The data set of `config.data`."""
    return data.get(
        config.data.name,
        data_dir,
        train_split=config.data.train_split,
        image_size=config.data.image_size,
        # Runs of before this setting have it not in their config.json.
        augment=config.data.get("augment", True),
        dtype=_compute_dtype(config),
    )


def build_loss(config, parts=("primary", "secondary")):
    """The `CompositeLoss` of `config.loss`.

    Args:
        config: The configuration.
        parts: Which of its parts. Interleaved training takes them apart.
    """
    settings = config.loss
    both = {part: _part(settings, settings[part]) for part in parts}
    return losses.CompositeLoss(
        both.get("primary"),
        both.get("secondary"),
        beta=settings.beta,
        from_logits=True,
        cross_replica=settings.cross_replica,
    )


def build_trainer(config, strategy, num_classes, image_shape, steps_per_epoch):
    """Model, optimizer and loss of a run, in a `Trainer`.

    Args:
        config: The configuration.
        strategy: The `tf.distribute` strategy.
        num_classes: Of the data.
        image_shape: Of the data.
        steps_per_epoch: Optimizer steps of an epoch.
    """
    keras.utils.set_random_seed(config.seed)
    parts = ("primary", "secondary")
    if config.interleaved.enabled:
        parts = ("primary",)
    settings = config.optimizer
    scale = config.batch_size / settings.reference_batch_size
    with strategy.scope():
        model = build_model(config, num_classes, image_shape)
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
    return training.Trainer(
        model,
        build_loss(config, parts),
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


def build_model(config, num_classes, image_shape):
    """The network of `config.model`, in `config.precision`."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(config.precision)
    try:
        return models.get(
            config.model, num_classes=num_classes, input_shape=image_shape
        )
    finally:
        keras.config.set_dtype_policy(before)


def _part(settings, name):
    if name is None:
        return None
    options = settings.options.get(name)
    # A name without options is one that `get` has a better error for.
    options = {} if options is None else options.to_dict()
    return losses.get(name, from_logits=True, **options)


def _compute_dtype(config):
    return "bfloat16" if config.precision == "mixed_bfloat16" else "float32"
