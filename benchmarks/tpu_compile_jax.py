"""Compiles a Keras training step on JAX for the eight chips of a v5e 2x4.

python benchmarks/tpu_compile_jax.py wrn-28-10 --secondary=sb_ece --quick

No TPU is needed. The batch is sharded over the chips and the weights are on
each, as under `keras.distribution.DataParallel`, so that the loss is that of
the global batch. `tpu_compile.py` starts this script for its rows of JAX.
"""

import argparse
import json
import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-8"
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_LOG_DIR", "disabled")

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import caltrain_tf as ct  # noqa: E402

TOPOLOGY, CHIPS = "v5e:2x4", 8


def compile_step(network, secondary, images, quick):
    """Returns the compiled step of CIFAR-10 with focal loss + `secondary`."""
    model = ct.models.get(network, num_classes=10, input_shape=(32, 32, 3))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    optimizer.build(model.trainable_variables)
    loss = ct.CompositeLoss("focal", secondary, from_logits=True)

    def step(state, x, y):
        weights, statistics, slots = state

        def value(weights, statistics):
            logits, statistics = model.stateless_call(
                weights, statistics, x, training=True
            )
            return loss(y, logits), statistics

        (loss_value, statistics), gradients = jax.value_and_grad(
            value, has_aux=True
        )(weights, statistics)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return (weights, statistics, slots), loss_value

    devices = topologies.get_topology_desc(TOPOLOGY, platform="tpu").devices
    mesh = Mesh(np.array(devices), ["batch"])

    def spec(shape, dtype, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    state = tuple(
        [spec(v.shape, v.dtype) for v in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
        )
    )
    batch = CHIPS * images
    lowered = jax.jit(step, donate_argnums=0).lower(
        state,
        spec((batch, 32, 32, 3), "float32", "batch"),
        spec((batch,), "int32", "batch"),
    )
    options = {"exec_time_optimization_effort": -1.0} if quick else None
    return lowered.compile(compiler_options=options)


def main():
    """Prints the cost and memory of one chip and one step, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("--secondary", default=None)
    parser.add_argument("--images", type=int, default=64, help="per chip")
    parser.add_argument("--quick", action="store_true", help="optimise less")
    flags = parser.parse_args()
    compiled = compile_step(**vars(flags))
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    row = {
        "sums": compiled.as_text().count(" all-reduce("),
        "flops": cost["flops"],
        "bytes": cost["bytes accessed"],
        "memory": memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
