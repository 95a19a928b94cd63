import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import tpu_compile

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "tpu_compile.py"


def run(*flags):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *flags],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason='the TPU compiler is not installed: pip install -e ".[tpu-check]"',
)
def test_a_small_network_compiles_for_tpu(tmp_path):
    file = tmp_path / "rows.json"
    flags = ("--networks=wrn-10-1", "--quick", "--secondaries=mmce")
    process = run(*flags, f"--json={file}")
    assert process.returncode == 0, process.stderr
    alone, both, evaluation, prediction = json.loads(file.read_text())
    names = ("train nll", "train nll + mmce")
    assert (alone["program"], both["program"]) == names
    # Two FLOPs a multiplication, forward and twice backward, 8 images.
    assert alone["flops"] > 6 * 8 * 9e6
    assert alone["sums"] < both["sums"]
    assert alone["flops"] < both["flops"] < 1.001 * alone["flops"]
    assert prediction["flops"] < evaluation["flops"] < alone["flops"] / 2
    # Weights and momentum in float32, images in bytes.
    assert alone["memory"] > 4 * 2 * 78_330 + 8 * 32 * 32 * 3


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is not None,
    reason="the TPU compiler is installed",
)
def test_says_how_to_get_the_compiler():
    process = run()
    assert process.returncode == 1
    assert "[tpu-check]" in process.stderr


def test_the_table():
    base = {
        "network": "wrn-10-1",
        "precision": "float32",
        "program": "train nll",
        "sums": 40,
        "flops": 2e12,
        "bytes": 4.095e9,
        "memory": 2**22,
    }
    header, rule = tpu_compile.HEADER.splitlines()
    alone = tpu_compile.table_row(base, base)
    # 2e12 FLOPs at 197e12 a second take longer than the bytes do.
    costs = "40 | 2000.0 | 4.095 | 10.15 | 4.0 | - | - | - |"
    assert alone == f"| wrn-10-1, float32, 8 | train nll | {costs}"
    both = {**base, "program": "train nll + mmce", "bytes": 16.38e9}
    both = tpu_compile.table_row({**both, "memory": 5 * 2**20}, base)
    costs = "40 | 2000.0 | 16.380 | 20.00 | 5.0"
    assert f"{costs} | +0.000% | +300.000% | +25.000% |" in both
    for line in (rule, alone, both):
        assert line.count("|") == header.count("|")


def test_the_program_is_that_of_a_trainer_on_four_cores():
    _, function, specs = tpu_compile.make_program("wrn-10-1", secondary="mmce")
    program = tpu_compile.lower(function, specs)
    # Each core sees its eight images, and what it sums goes over all four.
    assert "tensor<8x32x32x3xui8>" in program
    groups = re.findall(r"replica_groups = dense<\[\[([0-9, ]+)\]\]>", program)
    assert set(groups) == {"0, 1, 2, 3"}
    # Gradients, moving statistics and the loss.
    assert program.count("stablehlo.all_reduce") > 40
    assert "mhlo.copy" not in program
