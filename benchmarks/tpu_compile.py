r"""Estimates the cost of the secondary losses on a TPU from its compiler.

  pip install -e ".[tpu-check]"
  python benchmarks/tpu_compile.py --json=tpu.json
  python benchmarks/tpu_compile.py --tiny --quick --secondaries sb_ece

No TPU is needed. TensorFlow lowers the training step of `Trainer`, with its
sums over replicas, metrics and optimizer, and libtpu compiles it for the four
cores of a v5e 2x2: the steps of `configs/cifar10.py` (WRN-28-10, 64 images per
core) and `configs/imagenet.py` (ResNet-50 in bfloat16, 128 images per core),
with the primary loss alone and with each secondary loss. All numbers are for
one core and one step. FLOPs and bytes are the compiler's counts for the
compiled program, and memory is what that program allocates. The time is not a
measurement either: it is the larger of the FLOPs over the peak rate and the
bytes over the memory bandwidth. Use it to compare the rows of a table, not to
predict the time of a step. The column of the network has its precision and
images per core.

A step takes minutes to compile. Rows in the JSON file are not compiled again,
so the same command resumes after an interruption. With `--quick` the compiler
optimises less and finishes sooner; the program then has the same FLOPs but
different counts of bytes and memory.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import runpy
import sys
import time
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
TINY = "wrn-10-1"

# Peak rate of a v5e core in bfloat16, in which it also multiplies float32 by
# default, and its memory bandwidth.
FLOPS_A_SECOND = 197e12
BYTES_A_SECOND = 819e9
HEADER = """\
| network | loss | compiled | sums over cores | CPU s | GFLOP | GB accessed \
| ms, estimated | arguments MiB | temporaries MiB | code MiB \
| + FLOP | + bytes | + time | + memory |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


class Cores(tf.distribute.TPUStrategy):
    """A `TPUStrategy` without a TPU, whose replicas use collectives of XLA.

    `TPUStrategy` replaces its sums over replicas by those of XLA when a program
    is sent to the TPU. Here they are those of XLA from the start.
    """

    def __init__(self):
        tf.distribute.Strategy.__init__(self, _Extended(self))

    def program(self, function, *specs):
        """Returns the StableHLO text of the program of every core."""

        def on_core(*arguments):
            replica = gen_xla_ops.xla_replica_id()
            with tpu_strategy._TPUReplicaContext(self, replica):
                return function(*arguments)

        compiled = tf.function(on_core, jit_compile=True, autograph=False)
        text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo")
        # The only operation of another dialect, which does not change values.
        return re.sub(
            r"mhlo\.copy (%\S+) : (tensor<[^>]*>)",
            r"stablehlo.reshape \1 : (\2) -> \2",
            text,
        )


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


def recipe(name):
    """Returns the configuration of a model."""
    config = runpy.run_path(CONFIGS / RECIPES[name][0])["get_config"]()
    config.model = name
    return config


def lower(config, batch_per_core):
    """Returns the program of the training step of `Trainer` on a core."""
    _, image_shape, num_classes, _ = RECIPES[config.model]
    # The properties of the data that a network needs; no data are read.
    data = types.SimpleNamespace(
        image_shape=image_shape,
        num_classes=num_classes,
        rescaling={"scale": 1 / 255, "offset": -0.5},
    )
    config.batch_size = batch_per_core * CORES
    strategy = Cores()
    with strategy.scope():
        model = build.model(config, data)
        optimizer = build.optimizer(config, {"dataset_steps": 100})
    loss = build.loss(config)
    trainer = build.trainer(config, model, loss, optimizer, strategy)
    return strategy.program(
        trainer._step.train,
        tf.TensorSpec((batch_per_core, *image_shape), tf.uint8),
        tf.TensorSpec((batch_per_core,), tf.int32),
    )


def measure(program, quick):
    """Compiles a program and returns its cost and memory on one core."""
    import jax
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
    start = time.process_time()
    try:
        compiled = devices[0].client.compile(
            module, xla_client.DeviceList(tuple(devices)), options
        )
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error).splitlines()[0]}
    seconds = time.process_time() - start
    cost, memory = (
        compiled.cost_analysis(),
        compiled.get_compiled_memory_stats(),
    )
    return {
        "all_reduces": program.count("stablehlo.all_reduce"),
        "compile_cpu_seconds": seconds,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
    }


def table_row(row, base):
    """Returns a table line; `base` is the row of the primary loss alone."""
    network = f"{row['model']}, {row['precision']}, {row['batch_per_core']}"
    cells = [network, row["loss"]]
    if "error" in row:
        cells.append(f"no: {row['error']}")
        return f"| {' | '.join(cells)} |" + " - |" * 12
    cells += [
        "yes",
        f"{row['all_reduces']}",
        f"{row['compile_cpu_seconds']:.0f}",
        f"{row['flops'] / 1e9:.1f}",
        f"{row['bytes_accessed'] / 1e9:.3f}",
        f"{_seconds(row) * 1e3:.2f}",
    ]
    cells += [f"{size / 2**20:.1f}" for size in _memory(row)]
    if row is base or "error" in base:
        return f"| {' | '.join(cells)} |" + " - |" * 4
    quantities = (
        lambda row: row["flops"],
        lambda row: row["bytes_accessed"],
        _seconds,
        lambda row: sum(_memory(row)),
    )
    cells += [f"{part(row) / part(base) - 1:+.3%}" for part in quantities]
    return f"| {' | '.join(cells)} |"


def _seconds(row):
    return max(
        row["flops"] / FLOPS_A_SECOND, row["bytes_accessed"] / BYTES_A_SECOND
    )


def _memory(row):
    return [row[f"{kind}_bytes"] for kind in ("argument", "temporary", "code")]


def parse_flags():
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [name for name in RECIPES if name != TINY]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--primary", choices=losses.PRIMARY, default="nll")
    parser.add_argument(
        "--secondaries",
        nargs="*",
        choices=losses.SECONDARY,
        default=list(losses.SECONDARY),
    )
    parser.add_argument(
        "--precision", help="instead of the recipe's, such as mixed_bfloat16"
    )
    parser.add_argument("--batch_per_core", type=int, help="the recipe's")
    parser.add_argument("--tiny", action="store_true", help="WRN-10-1 alone")
    parser.add_argument("--quick", action="store_true", help="optimise less")
    parser.add_argument("--json", type=pathlib.Path, help="keeps the rows")
    flags = parser.parse_args()
    if flags.tiny:
        flags.models = [TINY]
    return flags


def main():
    """Prints the table; exits with an error if a step does not compile."""
    flags = parse_flags()
    if importlib.util.find_spec("libtpu") is None:
        sys.exit('libtpu is missing: pip install -e ".[tpu-check]"')
    rows = []
    if flags.json and flags.json.exists():
        rows = json.loads(flags.json.read_text())
        rows = [row for row in rows if "error" not in row]
    failed = False
    print(HEADER, flush=True)
    for name in flags.models:
        batch = flags.batch_per_core or RECIPES[name][-1]
        precision = flags.precision or recipe(name).precision
        base = None
        for secondary in (None, *flags.secondaries):
            case = {
                "model": name,
                "loss": " + ".join(filter(None, (flags.primary, secondary))),
                "batch_per_core": batch,
                "precision": precision,
                "quick": flags.quick,
            }
            row = next((r for r in rows if r.items() >= case.items()), None)
            if row is None:
                config = recipe(name)
                config.precision = precision
                config.loss.primary = flags.primary
                config.loss.secondary = secondary
                row = {**case, **measure(lower(config, batch), flags.quick)}
                rows.append(row)
            base = base or row
            failed = failed or "error" in row
            print(table_row(row, base), flush=True)
            if flags.json:
                flags.json.write_text(json.dumps(rows, indent=2))
    sys.exit(failed)


if __name__ == "__main__":
    main()
