r"""What the secondary losses cost on a TPU, asked of its compiler.

  pip install -e ".[tpu-check]"
  python benchmarks/tpu_compile.py --json=tpu.json
  python benchmarks/tpu_compile.py --tiny --secondaries sb_ece

No TPU is needed: libtpu compiles the training steps of `configs/cifar10.py`
(WRN-28-10, 64 images a core) and `configs/imagenet.py` (ResNet-50 in bfloat16,
128 images a core) for the four cores of a v5e 2x2, the primary loss alone and
with each secondary loss. Only shapes go in. All figures are for one core and
one step. FLOPs, bytes and time are those of the compiler's own model of the
program that it made, not measurements; memory is what the program asks for.
`jax_train_step.py` has the step and says what it means over several cores.
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


def lower(name, primary, secondary, mesh, batch_per_core, precision=None):
    """Traces the step of a recipe for the cores of `mesh`; shapes only."""
    config_file, image_shape, num_classes, _ = RECIPES[name]
    config = runpy.run_path(CONFIGS / config_file)["get_config"]()
    precision = precision or config.precision
    keras.config.set_dtype_policy(precision)
    model = models.get(name, input_shape=image_shape, num_classes=num_classes)
    parts = [
        part and losses.get(part, from_logits=True, **config.loss.options[part])
        for part in (primary, secondary)
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
    program = lowered.compile()
    seconds = time.process_time() - start
    cost, memory = program.cost_analysis(), program.memory_analysis()
    return {
        "compile_cpu_seconds": seconds,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "estimated_seconds": cost["optimal_seconds"],
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
    }


HEADER = """\
| loss | compiled | CPU s | GFLOP | GB accessed | est. ms | arguments MiB \
| temporaries MiB | code MiB | + FLOP | + bytes | + est. time | + memory |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def table_row(row, base):
    """A line of the table; `base` is the row of the primary loss alone."""
    if "error" in row:
        return f"| {row['loss']} | no: {row['error']} |" + " - |" * 11
    cells = [
        row["loss"],
        "yes",
        f"{row['compile_cpu_seconds']:.0f}",
        f"{row['flops'] / 1e9:.1f}",
        f"{row['bytes_accessed'] / 1e9:.3f}",
        f"{row['estimated_seconds'] * 1e3:.3f}",
    ]
    cells += [f"{size / 2**20:.1f}" for size in _memory(row)]
    if row is base or "error" in base:
        return f"| {' | '.join(cells)} |" + " - |" * 4
    cells += [
        f"{row[key] / base[key] - 1:+.3%}"
        for key in ("flops", "bytes_accessed", "estimated_seconds")
    ]
    cells.append(f"{sum(_memory(row)) / sum(_memory(base)) - 1:+.3%}")
    return f"| {' | '.join(cells)} |"


def _memory(row):
    return [row[f"{kind}_bytes"] for kind in ("argument", "temporary", "code")]


def parse_flags(arguments=None):
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
    parser.add_argument("--json", type=pathlib.Path, help="a file to write")
    flags = parser.parse_args(arguments)
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
    rows = []
    for name in flags.models:
        batch = flags.batch_per_core or RECIPES[name][-1]
        print(f"\n{name}, {batch} images a core, one core of {TOPOLOGY}\n")
        print(HEADER, flush=True)
        base = None
        for secondary in (None, *flags.secondaries):
            loss = " + ".join(filter(None, (flags.primary, secondary)))
            row = {"model": name, "batch_per_core": batch, "loss": loss}
            try:
                lowered = lower(
                    name, flags.primary, secondary, mesh, batch, flags.precision
                )
                row.update(measure(lowered))
            except jax.errors.JaxRuntimeError as error:
                row["error"] = str(error).splitlines()[0]
            base = base or row
            rows.append(row)
            print(table_row(row, base), flush=True)
            if flags.json:
                flags.json.write_text(json.dumps(rows, indent=2))
    sys.exit(any("error" in row for row in rows))


if __name__ == "__main__":
    main()
