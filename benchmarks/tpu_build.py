"""Installs the TPU build of TensorFlow in a new environment and tries it.

    python benchmarks/tpu_build.py
    python benchmarks/tpu_build.py --libtpu=0.0.21 --folder=tpu

Plain `tensorflow` has no TPU kernels, and `tensorflow-tpu` takes the newest
libtpu that it allows, which aborts at `import tensorflow`. This checks a pair
of versions on any Linux machine: it is installed and imported, and the training
step, the evaluation and the prediction of `Trainer` are traced for four cores.
On a TPU VM it says how many cores there are.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).parents[1]


def install(folder, tensorflow, libtpu):
    """Returns the Python of a new environment with the two versions."""
    venv.create(folder, with_pip=True)
    python = pathlib.Path(folder, "bin", "python")
    pair = [f"tensorflow-tpu=={tensorflow}", f"libtpu=={libtpu}"]
    pip = [python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[baselines]"]
    subprocess.run([*pip, *pair], check=True)
    return python


def check():
    """Prints what the installed pair can do."""
    import importlib.metadata

    import tpu_compile  # Sets the environment before TensorFlow is imported.

    for name in ("tensorflow-tpu", "libtpu", "keras"):
        print(name, importlib.metadata.version(name))
    for part in ("train", "evaluate", "predict"):
        made = tpu_compile.make_program("wrn-10-1", part, "sb_ece")
        _, function, specs = made
        graph = function.get_concrete_function(*specs).graph.as_graph_def()
        nodes = [*graph.node]
        for each in graph.library.function:
            nodes += each.node_def
        sums = sum(node.op == "XlaAllReduce" for node in nodes)
        print(f"{part}: traced, {sums} sums over cores")
    from caltrain_tf import training

    try:
        strategy = training.get_strategy(tpu="local")
        print(f"Running on {strategy.num_replicas_in_sync} TPU cores.")
    except ValueError as error:
        print(f"No TPU here: {str(error).splitlines()[1]}")


def main():
    """Installs and checks, the latter in the new environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", default="2.20.0")
    parser.add_argument("--libtpu", default="0.0.24")
    parser.add_argument("--folder", help="of the environment, to keep it")
    parser.add_argument("--check", action="store_true", help="this environment")
    flags = parser.parse_args()
    if flags.check:
        return check()
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.folder or temporary
        python = install(folder, flags.tensorflow, flags.libtpu)
        done = subprocess.run([python, __file__, "--check"], cwd=ROOT)
    return sys.exit(done.returncode)


if __name__ == "__main__":
    main()
