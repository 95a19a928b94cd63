"""What a trainer refuses before it starts."""

import keras


def check_arguments(loss, metrics, l2, l2_on, steps_per_execution, clip_norm):
    """Raises on arguments that cannot be meant."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            "`Trainer` is for Keras' TensorFlow backend: it trains under "
            "`tf.distribute`. Compile the model with the loss and use "
            "`model.fit`, which trains on every backend, or set "
            "KERAS_BACKEND=tensorflow before Keras is imported. "
            f"Received: backend={backend!r}"
        )
    if not isinstance(loss, keras.losses.Loss):
        raise ValueError(
            f"`loss` must be a `keras.losses.Loss`. Received: loss={loss!r}"
        )
    for metric in metrics:
        if not isinstance(metric, keras.metrics.Metric):
            raise ValueError(
                "`metrics` must hold `keras.metrics.Metric`s. "
                f"Received: {metric!r}"
            )
    names = [metric.name for metric in metrics]
    reserved = ("loss", "primary_loss", "secondary_loss", "l2_loss")
    if len({*names, *reserved}) < len(names) + len(reserved):
        raise ValueError(
            "`metrics` must have names of their own, and none of "
            f"{', '.join(reserved)}. Received: {names}"
        )
    if not l2 >= 0:
        raise ValueError(f"`l2` must be >= 0. Received: l2={l2}")
    if isinstance(l2_on, str):
        raise ValueError(
            f"`l2_on` must be a sequence of names. Received: l2_on={l2_on!r}"
        )
    if not isinstance(steps_per_execution, int) or steps_per_execution < 1:
        raise ValueError(
            "`steps_per_execution` must be an integer >= 1. "
            f"Received: steps_per_execution={steps_per_execution}"
        )
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(
            f"`clip_norm` must be > 0 or None. Received: clip_norm={clip_norm}"
        )


def check_l2_names(model, l2_on):
    """Raises on a name that no trainable variable has."""
    names = sorted({variable.name for variable in model.trainable_variables})
    unknown = [name for name in l2_on or () if name not in names]
    if unknown:
        raise ValueError(
            f"`l2_on` must name trainable variables, of {', '.join(names)}. "
            f"Received: {', '.join(map(repr, unknown))}"
        )


def check_made_in_scope(strategy, model, optimizer):
    """Raises unless model and optimizer can be trained on the strategy."""
    if not model.built or not model.trainable_variables:
        raise ValueError(
            "`model` must be built and have trainable variables. "
            f"Received: {model.name}, built={model.built}"
        )
    variables = [*model.variables, optimizer.iterations]
    for variable in variables:
        if not strategy.extended.variable_created_in_scope(variable.value):
            raise ValueError(
                "`model` and `optimizer` must be made inside `with "
                f"strategy.scope():`. Received: {variable.path}, which was not"
            )
    policies = {
        layer.dtype_policy.name
        for layer in model._flatten_layers()
        if layer.dtype_policy is not None
    }
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if "mixed_float16" in policies and not scales:
        raise ValueError(
            "`mixed_float16` needs `keras.optimizers.LossScaleOptimizer` "
            "around the optimizer, or small gradients become 0. "
            f"Received: optimizer={optimizer.name}"
        )
    inner = optimizer.inner_optimizer if scales else optimizer
    clips = ("clipnorm", "global_clipnorm")
    if strategy.num_replicas_in_sync > 1 and any(
        getattr(inner, name, None) for name in clips
    ):
        raise ValueError(
            "On several replicas, `clipnorm` and `global_clipnorm` of an "
            "optimizer clip each replica's gradient before they are added "
            "up. Pass `clip_norm` to the `Trainer`. "
            f"Received: optimizer={inner.name}"
        )
