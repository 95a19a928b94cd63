import functools
import json

import numpy as np

import caltrain_tf as ct
from caltrain_tf import files
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
    *lines, end = of_run.stdout.splitlines()
    assert lines == of_file.stdout.splitlines()[:-1]
    assert end == f"Results are in {tmp_path / 'calibration'}."
    assert of_run.stdout.startswith("Not calibrated: over-confident (p = ")
    for folder in ("calibration", "all"):
        found = {path.name for path in (tmp_path / folder).iterdir()}
        assert found == {
            "calibrator.json",
            "diagnosis.json",
            "reliability.png",
        }
    values = json.loads((tmp_path / "all" / "diagnosis.json").read_text())
    assert values["verdict"] == lines[0]
    calibrator = ct.posthoc.load(tmp_path / "all" / "calibrator.json")
    assert calibrator.choice_ != "none"
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
    assert "corrupted_logits and corrupted_labels of" in done.stderr
    del arrays["corrupted_labels"]
    np.savez(tmp_path / "less.npz", **arrays)
    done = run(f"--outputs={tmp_path / 'less.npz'}")
    assert done.stderr.endswith("without corrupted_labels")


def test_probabilities_of_a_binary_classifier(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.random(300)
    labels = rng.random(300) < probs**2
    np.savez(tmp_path / "forest.npz", probs=probs, labels=labels)
    bucket = files.as_path("ram://calibrate/forest")
    done = run(f"--outputs={tmp_path / 'forest.npz'}", f"--output_dir={bucket}")
    assert done.returncode == 0, done.stderr
    assert "Not calibrated" in done.stdout
    assert (bucket / "reliability.png").read_bytes()[1:4] == b"PNG"
    (tmp_path / "x.json").write_text((bucket / "calibrator.json").read_text())
    calibrator = ct.posthoc.load(tmp_path / "x.json")
    assert calibrator.predict_proba(probs).shape == (300,)


def test_wrong_files_are_named_in_one_line(tmp_path):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(20, 3)), rng.integers(0, 3, 20)
    arrays = {"calibration_logits": logits, "calibration_labels": labels}
    wrong = logits.copy()
    wrong[5, 1] = np.nan
    np.savez(
        tmp_path / "nan.npz", test_logits=wrong, test_labels=labels, **arrays
    )
    np.savez(
        tmp_path / "id.npz",
        test_logits=logits,
        test_labels=labels + 1,
        **arrays,
    )
    np.savez(tmp_path / "none.npz", **arrays)
    np.savez(tmp_path / "object.npz", logits=np.array([{}, None]))
    np.savez_compressed(tmp_path / "whole.npz", logits=logits, labels=labels)
    content = bytearray((tmp_path / "whole.npz").read_bytes())
    (tmp_path / "half.npz").write_bytes(content[: len(content) // 2])
    content[100:140] = bytes(40)
    (tmp_path / "spoilt.npz").write_bytes(content)
    np.save(tmp_path / "array.npy", logits)
    for name, message in {
        "nan.npz": "Received: test_logits[5] from nan",
        "id.npz": "`labels` must hold class ids from 0 to 2",
        "none.npz": "without test_logits, test_labels",
        "object.npz": "--outputs must be an .npz file of arrays",
        "half.npz": "--outputs must be an .npz file of arrays",
        "spoilt.npz": "--outputs must be an .npz file of arrays",
        "array.npy": "--outputs must be an .npz file of arrays",
        "missing.npz": "No such file or directory",
    }.items():
        done = run(f"--outputs={tmp_path / name}")
        assert done.returncode == 1
        assert message in done.stderr and name in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
