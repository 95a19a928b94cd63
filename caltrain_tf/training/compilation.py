"""What XLA compiles of a step."""

import tensorflow as tf

from caltrain_tf.training.strategy import is_multi_worker


def compiled_part(model, objective, jit_compile):
    """What XLA compiles: `"step"`, `"gradients"`, `"forward"` or None.

    On CPU and GPU, XLA cannot compile what communicates between replicas: the
    sum of gradients, a loss with `cross_replica=True` and BatchNormalization
    with `synchronized=True`. A TPU compiles all of a step without being asked.

    | replicas | loss communicates | compiled |
    |---|---|---|
    | one | - | the step |
    | several | no | the gradients, with the loss |
    | several | yes | the model's forward pass, and so its backward pass |
    | several, synchronized normalization | - | nothing |

    Args:
        model: The Keras model.
        objective: The `Objective`.
        jit_compile: Whether XLA is wanted at all.

    Returns:
        The part's name.
    """
    strategy = tf.distribute.get_strategy()
    if not jit_compile or isinstance(strategy, tf.distribute.TPUStrategy):
        return None
    # All-reduces of several workers stay collectives even with one replica.
    if strategy.num_replicas_in_sync == 1 and not is_multi_worker(strategy):
        return "step"
    layers = model._flatten_layers()
    if any(getattr(layer, "synchronized", False) for layer in layers):
        return None
    return "forward" if objective.communicates else "gradients"


def compiled(function):
    """The function, compiled by XLA."""
    return tf.function(function, jit_compile=True, autograph=False)
