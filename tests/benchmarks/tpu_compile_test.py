import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "tpu_compile.py"


def run(*flags):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *flags], capture_output=True, text=True
    )


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason='the TPU compiler is not installed: pip install -e ".[tpu-check]"',
)
def test_a_small_network_compiles_for_tpu(tmp_path):
    file = tmp_path / "rows.json"
    process = run("--tiny", "--secondaries", "mmce", f"--json={file}")
    assert process.returncode == 0, process.stderr
    alone, both = json.loads(file.read_text())
    assert (alone["loss"], both["loss"]) == ("nll", "nll + mmce")
    # Two FLOPs a multiplication, forward and twice backward, 8 images.
    assert alone["flops"] > 6 * 8 * 9e6
    assert alone["flops"] < both["flops"] < 1.001 * alone["flops"]
    # Weights, momentum and images, in float32.
    num_bytes = 4 * (2 * 78_330 + 8 * 32 * 32 * 3)
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


def test_a_row_says_what_the_secondary_loss_adds():
    code = """
import tpu_compile
base = dict(loss="nll", compile_cpu_seconds=61.0, flops=2e12,
            bytes_accessed=4e9, estimated_seconds=0.01,
            argument_bytes=2**20, temporary_bytes=2**21, code_bytes=2**20)
more = {**base, "loss": "nll + mmce", "flops": 2.002e12, "code_bytes": 2**21}
failed = {"loss": "nll + mmce", "error": "RESOURCE_EXHAUSTED"}
print(tpu_compile.table_row(base, base))
print(tpu_compile.table_row(more, base))
print(tpu_compile.table_row(failed, base))
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=SCRIPT.parent,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    costs = "yes | 61 | 2000.0 | 4.000 | 10.000 | 1.0 | 2.0"
    more = costs.replace("2000", "2002")
    added = "+0.100% | +0.000% | +0.000% | +25.000%"
    assert process.stdout.splitlines() == [
        f"| nll | {costs} | 1.0 | - | - | - | - |",
        f"| nll + mmce | {more} | 2.0 | {added} |",
        "| nll + mmce | no: RESOURCE_EXHAUSTED |" + " - |" * 11,
    ]
