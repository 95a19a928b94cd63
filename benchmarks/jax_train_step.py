"""The training step of `Trainer` in JAX, over several devices.

It is here to be compiled for TPUs without TensorFlow; see `tpu_compile.py`. As
in `caltrain_tf.training.Trainer`, each core normalises its own part of the
batch, and the moving statistics are the mean over the cores. The logits stay
sharded, but `jax.jit` keeps the meaning of the program that it partitions, so
that the loss is that of the *global* batch: what `cross_replica=True` is under
`tf.distribute`. The compiler adds the communication.
"""

import jax
import keras
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec


def train_step(model, loss, optimizer, mesh, l2=0.0, l2_on=()):
    """Makes a training step that is compiled for the cores of `mesh`.

    Args:
        model: A built Keras model that returns logits.
        loss: A Keras loss of `(labels, logits)`, for the global batch.
        optimizer: A built Keras optimizer.
        mesh: A `jax.sharding.Mesh` with the one axis `"core"`.
        l2: Factor of the sum of squares of the penalised weights.
        l2_on: Names of the penalised weights; empty for all of them.

    Returns:
        A jitted function of `(weights, state, slots, images, labels)`, in the
        order of the model's trainable and other variables and the optimizer's,
        that returns `(loss, weights, state, slots)`.
    """
    whole, split = PartitionSpec(), PartitionSpec("core")
    penalised = [
        not l2_on or variable.name in l2_on
        for variable in model.trainable_variables
    ]

    def forward_on_core(weights, state, images):
        logits, state = model.stateless_call(
            weights, state, images, training=True
        )
        return logits, jax.lax.pmean(state, "core")

    forward = jax.shard_map(
        forward_on_core,
        mesh=mesh,
        in_specs=(whole, whole, split),
        out_specs=(split, whole),
    )

    def objective(weights, state, images, labels):
        logits, state = forward(weights, state, images)
        squares = [
            keras.ops.sum(keras.ops.square(weight))
            for weight, counts in zip(weights, penalised, strict=True)
            if counts
        ]
        return loss(labels, logits) + l2 * sum(squares), state

    def step(weights, state, slots, images, labels):
        (value, state), gradients = jax.value_and_grad(objective, has_aux=True)(
            weights, state, images, labels
        )
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return value, weights, state, slots

    replicated, sharded = NamedSharding(mesh, whole), NamedSharding(mesh, split)
    return jax.jit(
        step,
        in_shardings=(replicated,) * 3 + (sharded,) * 2,
        out_shardings=replicated,
        donate_argnums=(0, 1, 2),
    )
