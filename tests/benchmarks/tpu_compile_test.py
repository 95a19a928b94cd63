import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "tpu_compile.py"


def run(*flags):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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
