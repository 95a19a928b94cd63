import functools

import numpy as np

import caltrain_tf as ct
from caltrain_tf.experiments import prediction_files
from tests.baselines.scripts import run_here, start

run = functools.partial(run_here, "calibrate.py")


def test_both_kinds_of_outputs_give_the_same_table(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {}
    for split in ("calibration", "test"):
        logits = rng.normal(0, 3, (300, 4)).astype("float32")
        labels = (logits + 2 * rng.gumbel(size=(300, 4))).argmax(axis=1)
        arrays |= {f"{split}_logits": logits, f"{split}_labels": labels}
        path = tmp_path / "predictions" / f"{split}.npz"
        prediction_files.save(path, logits, labels)
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


def test_corrupted_outputs_get_a_table_by_severity(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=600)
    clean = rng.normal(0, 2, (600, 4)) + 5 * np.eye(4)[labels]
    noise = rng.normal(0, 2, (2, 3, 100, 4))
    corrupted = clean[300:400] + noise * np.arange(1, 4)[:, None, None]
    arrays = {
        "clean_logits": clean.astype("float32"),
        "clean_labels": labels,
        "corrupted_logits": corrupted.astype("float16"),
        "corrupted_labels": labels[300:400],
    }
    np.savez(tmp_path / "all.npz", **arrays)
    process = start("calibrate.py", f"--outputs={tmp_path / 'all.npz'}")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    lines = output.splitlines()
    heads = next(line for line in lines if "severity 1" in line)
    assert heads.split()[3:] == "clean severity 1 severity 2 severity 3".split()
    scaler = ct.posthoc.TemperatureScaling("sb_ece")
    scaler.fit(arrays["clean_logits"][:300], labels[:300])
    assert f"{scaler.temperature_:.3f}" in output
    tests = [(arrays["clean_logits"][300:], labels[300:])]
    tests += [
        (arrays["corrupted_logits"][kind, 2], labels[300:400])
        for kind in range(2)
    ]
    first, *last = (
        100 * ct.metrics.calibration_error(scaler.predict_proba(x), y)
        for x, y in tests
    )
    (line,) = (line for line in lines if line.startswith("ECE (%), TS-SB-ECE"))
    cells = line.removeprefix("ECE (%), TS-SB-ECE").split()
    assert cells[0] == f"{first:.2f}"
    # The last are the mean, "±" and its error.
    assert cells[-3] == f"{np.mean(last):.2f}"

    np.savez(tmp_path / "flat.npz", **arrays | {"corrupted_logits": clean})
    done = run(f"--outputs={tmp_path / 'flat.npz'}")
    assert "--outputs must have corrupted_logits (corr" in done.stderr
    del arrays["corrupted_labels"]
    np.savez(tmp_path / "less.npz", **arrays)
    done = run(f"--outputs={tmp_path / 'less.npz'}")
    assert done.stderr.endswith("without corrupted_labels")
