import functools

import numpy as np

import caltrain_tf as ct
from tests.baselines.scripts import run_here

run = functools.partial(run_here, "calibrate.py")


def test_both_kinds_of_outputs_give_the_same_table(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {}
    for split in ("calibration", "test"):
        logits = rng.normal(0, 3, (300, 4)).astype("float32")
        labels = (logits + 2 * rng.gumbel(size=(300, 4))).argmax(axis=1)
        arrays |= {f"{split}_logits": logits, f"{split}_labels": labels}
        path = tmp_path / "predictions" / f"{split}.npz"
        ct.evaluation.save_predictions(path, logits, labels)
    np.savez(tmp_path / "all.npz", **arrays)
    of_run = run(f"--run_dir={tmp_path}")
    of_file = run(f"--outputs={tmp_path / 'all.npz'}")
    assert of_run.returncode == 0, of_run.stderr
    assert of_run.stdout == of_file.stdout
    error = ct.metrics.calibration_error(
        arrays["test_logits"], arrays["test_labels"], from_logits=True
    )
    assert f"{100 * error:.2f}" in of_run.stdout
    assert run().returncode != 0
