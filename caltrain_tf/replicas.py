"""Sums and gathers over the replicas of a `tf.distribute` strategy.

Outside a strategy, and on other Keras backends, there is one replica and these
functions return what they are given. Keras has no such collectives; TensorFlow
is imported only where it is the backend.

Gradients. A loss that is computed from all-reduced sums has the same value on
every replica. The gradient of an all-reduce is an all-reduce, so each replica's
gradient comes out multiplied by the number of replicas; dividing the loss by
that number, as every Keras loss does, makes the sum over replicas exact.
"""

import keras


def replica_count():
    """Returns the number of replicas that run in step; 1 without a strategy."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_over_replicas(tensor):
    """Adds up `tensor` over the replicas, differentiably."""
    context = _replica_context()
    if context is None:
        return tensor
    return context.all_reduce("SUM", tensor)


def gather_over_replicas(tensor):
    """Joins `tensor` of all replicas along its first axis, differentiably."""
    context = _replica_context()
    if context is None:
        return tensor
    return context.all_gather(tensor, axis=0)


def _replica_context():
    """The replica context, or None if there are no other replicas to reach."""
    if replica_count() == 1:
        return None
    import tensorflow as tf

    # None in a cross-replica context, where the batch is the global one. Keras
    # traces the loss there to learn its shape.
    context = tf.distribute.get_replica_context()
    strategy = tf.distribute.get_strategy()
    on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    if context is not None and not on_tpu and is_compiled_by_xla():
        # TensorFlow's own all-reduce fails with a message about variables, and
        # its all-gather returns the local part as if it were complete.
        raise ValueError(
            "`cross_replica=True` cannot be compiled by XLA on CPU or GPU. "
            "Received: a loss inside a function with `jit_compile=True`. Pass "
            "`jit_compile=False` to `model.compile` (its default compiles), or "
            "compile the model's forward pass alone and leave the loss outside."
        )
    return context


def is_compiled_by_xla():
    """Whether XLA compiles the TensorFlow graph that is being traced."""
    import tensorflow as tf

    # There is no public way to ask.
    try:
        from tensorflow.python.ops import control_flow_util
    except ImportError:
        return False
    return control_flow_util.GraphOrParentsInXlaContext(
        tf.compat.v1.get_default_graph()
    )
