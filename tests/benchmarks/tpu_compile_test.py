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
    process = run("--tiny", "--quick", "--secondaries=mmce", f"--json={file}")
    assert process.returncode == 0, process.stderr
    alone, both = json.loads(file.read_text())
    assert (alone["loss"], both["loss"]) == ("nll", "nll + mmce")
    # Two FLOPs a multiplication, forward and twice backward, 8 images.
    assert alone["flops"] > 6 * 8 * 9e6
    assert alone["all_reduces"] < both["all_reduces"]
    assert alone["flops"] < both["flops"] < 1.001 * alone["flops"]
    # Weights and momentum in float32, images in bytes.
    num_bytes = 4 * 2 * 78_330 + 8 * 32 * 32 * 3
    assert alone["argument_bytes"] > num_bytes
    assert process.stdout.count("| yes |") == 2


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is not None,
    reason="the TPU compiler is installed",
)
def test_says_how_to_get_the_compiler():
    process = run("--tiny")
    assert process.returncode == 1
    assert "[tpu-check]" in process.stderr


NETWORK = {"model": "wrn", "precision": "float32", "batch_per_core": 8}
BASE = {
    **NETWORK,
    "loss": "nll",
    "all_reduces": 40,
    "compile_cpu_seconds": 61.0,
    "flops": 2e12,
    "bytes_accessed": 4.095e9,
    "argument_bytes": 2**20,
    "temporary_bytes": 2**21,
    "code_bytes": 2**20,
}


def test_the_table():
    header, rule = tpu_compile.HEADER.splitlines()
    alone = tpu_compile.table_row(BASE, BASE)
    # 2e12 FLOPs at 197e12 a second take longer than the bytes do.
    costs = "yes | 40 | 61 | 2000.0 | 4.095 | 10.15 | 1.0 | 2.0 | 1.0"
    assert alone == f"| wrn, float32, 8 | nll | {costs} | - | - | - | - |"
    row = {**BASE, "bytes_accessed": 16.38e9, "code_bytes": 2**21}
    both = tpu_compile.table_row(row, BASE)
    costs = "yes | 40 | 61 | 2000.0 | 16.380 | 20.00 | 1.0 | 2.0 | 2.0"
    added = "+0.000% | +300.000% | +97.000% | +25.000%"
    assert both == f"| wrn, float32, 8 | nll | {costs} | {added} |"
    error = {**NETWORK, "loss": "mmce", "error": "RESOURCE_EXHAUSTED"}
    failed = tpu_compile.table_row(error, BASE)
    assert failed.startswith(
        "| wrn, float32, 8 | mmce | no: RESOURCE_EXHAUSTED | - |"
    )
    for line in (rule, alone, both, failed):
        assert line.count("|") == header.count("|")
    # Where the base failed, there is nothing to compare with.
    assert tpu_compile.table_row(BASE, error).endswith("| - | - | - | - |")


def test_the_program_is_that_of_a_trainer_on_four_cores():
    config = tpu_compile.recipe(tpu_compile.TINY)
    config.loss.secondary = "mmce"
    program = tpu_compile.lower(config, batch_per_core=2)
    # Each core sees its two images, and what it sums goes over all four.
    assert "tensor<2x32x32x3xui8>" in program
    groups = re.findall(r"replica_groups = dense<\[\[([0-9, ]+)\]\]>", program)
    assert set(groups) == {"0, 1, 2, 3"}
    # Gradients, moving statistics and the loss.
    assert program.count("stablehlo.all_reduce") > 40
    assert "mhlo.copy" not in program
