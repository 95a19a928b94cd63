r"""What the secondary losses cost on a TPU, asked of its compiler.

  pip install -e ".[tpu-check]"
  python benchmarks/tpu_compile.py --json=tpu.json
  python benchmarks/tpu_compile.py --tiny --quick --secondaries sb_ece

No TPU is needed: libtpu compiles the training steps of `configs/cifar10.py`
(WRN-28-10, 64 images a core) and `configs/imagenet.py` (ResNet-50 in bfloat16,
128 images a core) for the four cores of a v5e 2x2, the primary loss alone and
with each secondary loss. Only shapes go in. All figures are for one core and
one step. FLOPs and bytes are the compiler's count for the program that it made;
memory is what that program asks for. The time is no measurement either: it is
FLOPs at the peak rate or bytes at the memory's, whichever takes longer. It
serves to compare the rows of a table, not to foretell a step's time.
`jax_train_step.py` has the step and says what it means over several cores.

A step takes minutes to compile. Rows that the JSON file has are not compiled
again, so that the same command goes on where it was stopped. With `--quick` the
compiler optimises less and is done sooner: another program of the same FLOPs,
with other counts of bytes and memory.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import runpy
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# What libtpu would otherwise ask of a machine that has the TPU.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
# One process at a time may hold a TPU; a process that compiles holds none.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_LOG_DIR", "disabled")

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax_train_step import train_step  # noqa: E402
from tpu_table import HEADER  # noqa: E402
from tpu_table import table_row  # noqa: E402

from caltrain_tf import losses  # noqa: E402
from caltrain_tf import models  # noqa: E402

TOPOLOGY = "v5e:2x2"
CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
# Configuration, image shape, classes and images a core.
RECIPES = {
    "wrn-28-10": ("cifar10.py", (32, 32, 3), 10, 64),
    "resnet-50": ("imagenet.py", (224, 224, 3), 1000, 128),
    "wrn-10-1": ("cifar10.py", (32, 32, 3), 10, 8),
}
TINY = "wrn-10-1"


def recipe(name):
    """The configuration of a model."""
    return runpy.run_path(CONFIGS / RECIPES[name][0])["get_config"]()


def lower(name, parts, mesh, batch_per_core, precision):
    """Traces the step of a recipe for the cores of `mesh`; shapes only."""
    _, image_shape, num_classes, _ = RECIPES[name]
    config = recipe(name)
    keras.config.set_dtype_policy(precision)
    model = models.get(name, input_shape=image_shape, num_classes=num_classes)
    parts = [
        part and losses.get(part, from_logits=True, **config.loss.options[part])
        for part in parts
    ]
    loss = losses.CompositeLoss(*parts, config.loss.beta, from_logits=True)
    settings = config.optimizer
    batch_size = batch_per_core * mesh.size
    optimizer = keras.optimizers.SGD(
        settings.learning_rate * batch_size / settings.reference_batch_size,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
    )
    optimizer.build(model.trainable_variables)
    step = train_step(model, loss, optimizer, mesh, settings.l2, settings.l2_on)
    image_dtype = "float32" if precision == "float32" else "bfloat16"
    return step.lower(
        _shapes(model.trainable_variables),
        _shapes(model.non_trainable_variables),
        _shapes(optimizer.variables),
        jax.ShapeDtypeStruct((batch_size, *image_shape), image_dtype),
        jax.ShapeDtypeStruct((batch_size,), "int32"),
    )


def _shapes(variables):
    return [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in variables]


def measure(lowered):
    """Compiles a step; what its program does and needs on one core."""
    start = time.process_time()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"error": str(error).splitlines()[0]}
    seconds = time.process_time() - start
    cost, memory = program.cost_analysis(), program.memory_analysis()
    return {
        "compile_cpu_seconds": seconds,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
    }


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
    """Prints a table for each model; fails if a step does not compile."""
    flags = parse_flags()
    if importlib.util.find_spec("libtpu") is None:
        sys.exit('libtpu is missing: pip install -e ".[tpu-check]"')
    topology = topologies.get_topology_desc(TOPOLOGY, platform="tpu")
    mesh = Mesh(np.array(topology.devices), ("core",))
    if flags.quick:
        jax.config.update("jax_exec_time_optimization_effort", -1.0)
    rows = []
    if flags.json and flags.json.exists():
        rows = json.loads(flags.json.read_text())
        rows = [row for row in rows if "error" not in row]
    failed = False
    for name in flags.models:
        batch = flags.batch_per_core or RECIPES[name][-1]
        precision = flags.precision or recipe(name).precision
        print(f"\n{name}, {precision}, {batch} images a core, {TOPOLOGY}\n")
        print(HEADER, flush=True)
        base = None
        for secondary in (None, *flags.secondaries):
            parts = (flags.primary, secondary)
            case = {
                "model": name,
                "loss": " + ".join(filter(None, parts)),
                "batch_per_core": batch,
                "precision": precision,
                "quick": flags.quick,
            }
            row = next((r for r in rows if r.items() >= case.items()), None)
            if row is None:
                lowered = lower(name, parts, mesh, batch, precision)
                row = {**case, **measure(lowered)}
                rows.append(row)
            base = base or row
            failed = failed or "error" in row
            print(table_row(row, base), flush=True)
            if flags.json:
                flags.json.write_text(json.dumps(rows, indent=2))
    sys.exit(failed)


if __name__ == "__main__":
    main()
