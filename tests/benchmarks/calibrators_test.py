import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import calibrators
from tests.posthoc.data import calibrated, softmax

SCRIPT = pathlib.Path(calibrators.__file__)


def test_prints_a_row_for_each_calibrator(tmp_path):
    logits, labels = calibrated(200, 3)
    np.savez(tmp_path / "net.npz", test_logits=2 * logits, test_labels=labels)
    done = subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            f"--outputs={tmp_path / 'net.npz'}",
            "--conformal_splits=3",
        ],
        env={"PYTHONPATH": str(SCRIPT.parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "net, 3 classes, 200 examples" in done.stdout
    for name in ("none", "ts", "structured_matrix", "thr", "aps", "raps"):
        assert done.stdout.count(f"\n| {name} | ") == 1


def test_halves_are_all_rows():
    fit, test = calibrators.halves(101, 0)
    assert (len(fit), len(test)) == (50, 51)
    np.testing.assert_array_equal(np.sort([*fit, *test]), np.arange(101))


def test_reads_logits_and_probabilities(tmp_path):
    logits, labels = calibrated(20, 3)
    path = tmp_path / "net.npz"
    np.savez(
        path,
        logits=logits,
        labels=labels,
        test_probs=softmax(logits),
        test_labels=labels,
        shifted_logits=np.zeros((2, 20, 3)),
        shifted_labels=labels,
    )
    found, found_labels = calibrators.read(path)
    expected = np.concatenate([logits, np.log(softmax(logits))])
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(found_labels, np.tile(labels, 2))
    np.savez(path, features=logits)
    with pytest.raises(SystemExit, match="with features"):
        calibrators.read(path)
