"""A model's moving statistics and seeds, over several replicas."""

import tensorflow as tf

# Replicas draw dropout masks of their own: their seeds are this far apart.
_SEED_STRIDE = 1_000_003


def values(variables):
    """The values of Keras variables on this replica."""
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def read_state(variables):
    """The values of non-trainable variables; seeds differ by replica."""
    return [
        value + _seed_offset(variable) if _is_seed(variable) else value
        for variable, value in zip(variables, values(variables), strict=True)
    ]


def write_state(variables, state):
    """Assigns what a step has made of the state, the same on all replicas.

    Floats, such as the statistics of BatchNormalization, become their mean over
    the replicas. Keras would leave every replica with statistics of its own, of
    which a checkpoint keeps the first replica's.
    """
    context = tf.distribute.get_replica_context()
    state = list(state)
    floats = [
        index
        for index, variable in enumerate(variables)
        if tf.as_dtype(variable.dtype).is_floating
    ]
    if context.num_replicas_in_sync > 1 and floats:
        means = context.all_reduce("MEAN", [state[i] for i in floats])
        for index, mean in zip(floats, means, strict=True):
            state[index] = mean
    for variable, value in zip(variables, state, strict=True):
        if _is_seed(variable):
            value = value - _seed_offset(variable)
        variable.assign(value)


def _seed_offset(variable):
    context = tf.distribute.get_replica_context()
    replica = tf.cast(context.replica_id_in_sync_group, variable.dtype)
    return tf.stack([replica * _SEED_STRIDE, tf.zeros_like(replica)])


def _is_seed(variable):
    return variable.name == "seed_generator_state"
