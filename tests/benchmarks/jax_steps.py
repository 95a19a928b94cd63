"""Takes the training steps of a problem in JAX, over two CPU devices.

python -m tests.benchmarks.jax_steps problem.npz solution.npz
"""

import sys

import jax
import keras
import numpy as np

import caltrain_tf as ct
from benchmarks.jax_train_step import train_step
from tests.benchmarks import problem


def main(source, target):
    arrays = np.load(source)
    model = problem.network()
    model.set_weights([arrays[f"weight{i}"] for i in range(len(model.weights))])
    optimizer = keras.optimizers.SGD(**problem.SGD)
    optimizer.build(model.trainable_variables)
    loss = ct.CompositeLoss(**problem.LOSS)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("core",))
    assert mesh.size == 2
    step = train_step(model, loss, optimizer, mesh, **problem.L2)
    variables = (
        model.trainable_variables,
        model.non_trainable_variables,
        optimizer.variables,
    )
    values = [[v.value for v in group] for group in variables]
    losses = []
    for images, labels in zip(arrays["images"], arrays["labels"], strict=True):
        value, *values = step(*values, images, labels)
        losses.append(value)
    for group, new_values in zip(variables, values, strict=True):
        for variable, value in zip(group, new_values, strict=True):
            variable.assign(value)
    np.savez(target, *model.get_weights(), losses=losses)


if __name__ == "__main__":
    main(*sys.argv[1:])
