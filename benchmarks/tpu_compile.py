r"""Compiles every program of a training run for a TPU, without one.

  pip install -e ".[tensorflow,baselines,tpu-check]"
  python benchmarks/tpu_compile.py --quick --json=tpu.json
  python benchmarks/tpu_compile.py --networks wrn-10-1 --secondaries sb_ece

TensorFlow lowers the training step of `Trainer`, with its sums over replicas,
metrics and optimizer, its evaluation and its prediction, and libtpu compiles
them for the four cores of a v5e 2x2: those of `configs/cifar10.py` (WRN-28-10,
64 images per core) and `configs/imagenet.py` (ResNet-50 in bfloat16, 128 images
per core), with NLL alone and with each secondary loss. All numbers are for one
core and one step. FLOPs and bytes are the compiler's counts, memory is what the
program allocates. "ms" is not a measurement either: it is the larger of the
FLOPs over the peak rate and the bytes over the memory bandwidth. Use it to
compare the rows of a table, not to predict the time of a step. The last rows of
WRN-28-10 are Keras' step on JAX for eight chips: `tpu_compile_jax.py`.

Rows in the JSON file are not compiled again, so the same command resumes after
an interruption. With `--quick` the compiler optimises less and finishes sooner;
the program then has the same FLOPs but other counts of bytes and memory.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import types

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Values that libtpu would otherwise query from a machine with a TPU.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
# libtpu allows one process per TPU, but compiling does not use the TPU.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_LOG_DIR", "disabled")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.compiler.tf2xla.ops import gen_xla_ops  # noqa: E402
from tensorflow.python.distribute import (
    one_device_strategy,  # noqa: E402
    tpu_strategy,  # noqa: E402
)

from caltrain_tf import losses  # noqa: E402
from caltrain_tf.experiments import build  # noqa: E402

TOPOLOGY = "v5e:2x2"
CORES = 4
CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
# Configuration, image shape, classes and images per core.
RECIPES = {
    "wrn-28-10": ("cifar10.py", (32, 32, 3), 10, 64),
    "resnet-50": ("imagenet.py", (224, 224, 3), 1000, 128),
    "wrn-10-1": ("cifar10.py", (32, 32, 3), 10, 8),
}
# Peak rate of a v5e core in bfloat16, in which it also multiplies float32 by
# default, and its memory bandwidth.
FLOPS_A_SECOND = 197e12
BYTES_A_SECOND = 819e9
HEADER = """\
| network, precision, images per core | program | sums over cores | GFLOP \
| GB accessed | ms, estimated | MiB allocated | + FLOP | + bytes | + memory |
|---|---|---|---|---|---|---|---|---|---|"""


class Cores(tf.distribute.TPUStrategy):
    """A `TPUStrategy` without a TPU, whose replicas use collectives of XLA.

    `TPUStrategy` replaces its sums over replicas by those of XLA when a program
    is sent to the TPU. Here they are those of XLA from the start.
    """

    def __init__(self):
        tf.distribute.Strategy.__init__(self, _Extended(self))

    def on_core(self, function):
        """Returns a function that XLA compiles as the program of a core."""

        def run(*arguments):
            replica = gen_xla_ops.xla_replica_id()
            with tpu_strategy._TPUReplicaContext(self, replica):
                return function(*arguments)

        return tf.function(run, jit_compile=True, autograph=False)


class _Extended(one_device_strategy.OneDeviceExtended):
    def __init__(self, strategy):
        super().__init__(strategy, "CPU:0")

    @property
    def _num_replicas_in_sync(self):
        return CORES

    def _use_merge_call(self):
        return False

    def _replica_ctx_all_reduce(self, reduce_op, value, options=None):
        def reduce(tensor):
            total = gen_xla_ops.xla_all_reduce(
                tensor,
                group_assignment=[list(range(CORES))],
                reduce_op="Add",
                mode="CrossReplica",
            )
            is_mean = reduce_op == tf.distribute.ReduceOp.MEAN
            return total / CORES if is_mean else total

        return tf.nest.map_structure(reduce, value)


def make_program(name, part="train", secondary=None):
    """Returns the precision, the function and the inputs of a core's program.

    Args:
        name: A network of `RECIPES`.
        part: `"train"`, `"evaluate"` or `"predict"`, of `Trainer`'s own step.
        secondary: The secondary loss, or None.
    """
    file, image_shape, num_classes, images = RECIPES[name]
    config = runpy.run_path(CONFIGS / file)["get_config"]()
    config.model = name
    config.batch_size = images * CORES
    config.loss.primary, config.loss.secondary = "nll", secondary
    # The properties of the data that a network needs; no data are read.
    data = types.SimpleNamespace(
        image_shape=image_shape,
        num_classes=num_classes,
        is_embedded=False,
        rescaling={"scale": 1 / 255, "offset": -0.5},
    )
    strategy = Cores()
    with strategy.scope():
        model = build.model(config, data)
        optimizer = build.optimizer(config, {"dataset_steps": 100})
    loss = build.loss(config)
    trainer = build.trainer(config, model, loss, optimizer, strategy)
    specs = [
        tf.TensorSpec((images, *image_shape), tf.uint8),
        tf.TensorSpec((images,), tf.int32),
        tf.TensorSpec((images,), tf.float32),
    ]
    count = {"train": 2, "evaluate": 3, "predict": 1}[part]
    function = strategy.on_core(getattr(trainer._step, part))
    return config.precision, function, specs[:count]


def lower(function, specs):
    """Returns the StableHLO text of a program."""
    text = function.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    # The only operation of another dialect, which does not change values.
    return re.sub(
        r"mhlo\.copy (%\S+) : (tensor<[^>]*>)",
        r"stablehlo.reshape \1 : (\2) -> \2",
        text,
    )


def measure_jax(network, secondary, quick):
    """Compiles Keras' step on JAX, in a process with that backend."""
    command = [
        sys.executable,
        pathlib.Path(__file__).parent / "tpu_compile_jax.py",
        network,
        f"--images={RECIPES[network][-1]}",
        *([f"--secondary={secondary}"] if secondary else []),
        *(["--quick"] if quick else []),
    ]
    return json.loads(subprocess.check_output(command))


def measure(program, quick):
    """Compiles a program and returns its cost and memory on one core."""
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    devices = topologies.get_topology_desc(TOPOLOGY, platform="tpu").devices
    options = compiler.get_compile_options(
        num_replicas=len(devices),
        num_partitions=1,
        device_assignment=np.array([[device.id] for device in devices]),
    )
    if quick:
        options.executable_build_options.exec_time_optimization_effort = -1.0
    module = ir.Module.parse(program, mlir.make_ir_context())
    compiled = devices[0].client.compile(
        module, xla_client.DeviceList(tuple(devices)), options
    )
    memory = compiled.get_compiled_memory_stats()
    return {
        "sums": program.count("stablehlo.all_reduce"),
        "flops": compiled.cost_analysis()["flops"],
        "bytes": compiled.cost_analysis()["bytes accessed"],
        "memory": memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes,
    }


def table_row(row, base):
    """Returns a table line; `base` is the row of the primary loss alone."""
    seconds = max(row["flops"] / FLOPS_A_SECOND, row["bytes"] / BYTES_A_SECOND)
    cells = [
        f"{row['network']}, {row['precision']}, {RECIPES[row['network']][-1]}",
        row["program"],
        row["sums"],
        f"{row['flops'] / 1e9:.1f}",
        f"{row['bytes'] / 1e9:.3f}",
        f"{seconds * 1e3:.2f}",
        f"{row['memory'] / 2**20:.1f}",
    ]
    for name in ("flops", "bytes", "memory"):
        added = row["program"].startswith(base["program"] + " +")
        cells.append(f"{row[name] / base[name] - 1:+.3%}" if added else "-")
    return f"| {' | '.join(map(str, cells))} |"


def main():
    """Prints the table, one row per program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    networks, secondaries = list(RECIPES), list(losses.SECONDARY)
    parser.add_argument(
        "--networks", nargs="+", choices=networks, default=networks[:2]
    )
    parser.add_argument(
        "--secondaries", nargs="*", choices=secondaries, default=secondaries
    )
    parser.add_argument("--quick", action="store_true", help="optimise less")
    parser.add_argument("--json", type=pathlib.Path, help="keeps the rows")
    flags = parser.parse_args()
    if importlib.util.find_spec("libtpu") is None:
        sys.exit('libtpu is missing: pip install -e ".[tpu-check]"')
    rows = []
    if flags.json and flags.json.exists():
        rows = json.loads(flags.json.read_text())
    print(HEADER, flush=True)
    for network in flags.networks:
        programs = {"train nll": ("train", None)}
        for secondary in flags.secondaries:
            programs[f"train nll + {secondary}"] = ("train", secondary)
        programs["evaluate nll + sb_ece"] = ("evaluate", "sb_ece")
        programs["predict"] = ("predict", None)
        if network != "resnet-50":
            programs["JAX, train focal"] = ("jax", None)
            programs["JAX, train focal + sb_ece"] = ("jax", "sb_ece")
        base = None
        for program, arguments in programs.items():
            case = {"network": network, "program": program}
            case["quick"] = flags.quick
            row = next((r for r in rows if r.items() >= case.items()), None)
            if row is None and arguments[0] == "jax":
                cost = measure_jax(network, arguments[1], flags.quick)
                row = {**case, "precision": "float32", **cost}
            elif row is None:
                made = make_program(network, *arguments)
                case["precision"], function, specs = made
                text = lower(function, specs)
                row = {**case, **measure(text, flags.quick)}
            if row not in rows:
                rows.append(row)
            if flags.json:
                flags.json.write_text(json.dumps(rows, indent=2))
            if not program.startswith(f"{base and base['program']} +"):
                base = row
            print(table_row(row, base), flush=True)


if __name__ == "__main__":
    main()
