import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "gallery" / "training" / "jax_data_parallel.py"


# Threads for all devices and for their work; with eight, XLA's virtual devices
# now and then wait for a thread that waits for them.
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "NPROC": "32",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 "
    "--xla_cpu_multi_thread_eigen=false "
    "--xla_cpu_collective_call_terminate_timeout_seconds=120",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
}


def test_eight_devices_of_jax_end_in_the_weights_of_one():
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, SCRIPT],
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
        )
        if "rendezvous" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(\w+): (\d+) devices, (\S+), ECE (\S+)", done.stdout)
    assert [row[:2] for row in found] == [
        ("composite", "8"),
        ("interleaved", "8"),
    ]
    for *_, weights, ece in found:
        # Sums of float32 numbers in another order; seen: 1.2e-7. With the mean
        # of the losses of eight shards, weights differ by 1.7e-3.
        assert float(weights) < 2e-6
        assert float(ece) < 2e-6
    assert float(re.search(r"loaded: (\S+)", done.stdout)[1]) < 1e-5
