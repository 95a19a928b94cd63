import json
import os
import shutil

import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf import files
from caltrain_tf.experiments import shift
from tests.baselines.scripts import run_here
from tests.experiments.configs import tiny, train

# So short a training determines no temperature.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FILES = (
    "robustness_metrics.json",
    "shift.csv",
    "shift_accuracy.png",
    "shift_ece.png",
    "shift_heatmap.png",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of an objective."""
    folder = tmp_path_factory.mktemp("runs")
    config = tiny()
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    train(config, str(folder / "seed0"))
    shutil.copytree(folder / "seed0", folder / "more" / "seed1")
    config = json.loads((folder / "seed0" / "config.json").read_text())
    config["seed"] = 1
    (folder / "more" / "seed1" / "config.json").write_text(json.dumps(config))
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "config.json").write_text("{}")
    return folder


def test_finished_runs_are_found(runs):
    both = [str(runs / "more" / "seed1"), str(runs / "seed0")]
    assert shift.find_runs(runs) == both
    assert shift.find_runs([both[1], both[0]]) == both
    assert shift.find_runs(both[0]) == both[:1]
    with pytest.raises(ValueError, match="finished run.*unfinished"):
        shift.find_runs(runs / "unfinished")


def test_the_network_is_that_of_the_predictions(runs):
    _, data, model, checkpoint = shift.load_run(runs / "seed0")
    assert checkpoint == "checkpoints/ckpt-3"
    rows = ct.evaluation.evaluate_shift(
        model, data, corruptions=[], calibrators={}
    )
    results = json.loads((runs / "seed0" / "results.json").read_text())
    values = {row["metric"]: row["value"] for row in rows}
    for metric in ("accuracy", "nll", "brier", "ece"):
        assert values[metric] == pytest.approx(results[metric], abs=1e-4)


def test_the_script_measures_and_compares_runs(runs):
    done = run_here(
        "shift_benchmark.py",
        f"--run_dir={runs}",
        "--corruptions=contrast,shot_noise",
        "--severities=1,4",
        "--num_examples=100",
    )
    assert done.returncode == 0, done.stderr
    assert "frost of a generated texture" in done.stdout
    assert "4/4" in done.stderr
    assert "(2 runs)" in done.stdout
    for folder in shift.find_runs(runs):
        files = os.listdir(folder)
        assert set(FILES) <= set(files)
        rows = ct.evaluation.read_shift_csv(os.path.join(folder, "shift.csv"))
        assert len(rows) == 5 * 3 * 4
        with open(os.path.join(folder, "robustness_metrics.json")) as file:
            report = json.load(file)
        ece = [
            row["value"]
            for row in rows
            if (row["metric"], row["calibrator"]) == ("ece", "ts")
            and row["severity"] > 0
        ]
        assert report["digits_c/ece_ts/mean"] == pytest.approx(np.mean(ece))
        path = os.path.join(folder, "predictions", "shot_noise_4.npz")
        logits, labels = ct.evaluation.load_predictions(path)
        assert logits.shape == (100, 10) and labels.shape == (100,)
    assert (runs / "shift_ece_ts_sb_ece.png").exists()


def test_runs_may_be_in_a_bucket(runs):
    bucket = "ram://shifted"
    for seed in ("seed0", "more/seed1"):
        for path in (runs / seed).rglob("*"):
            if path.is_file() and path.suffix != ".png":
                name = path.relative_to(runs).as_posix()
                files.write_bytes(f"{bucket}/{name}", path.read_bytes())
    done = run_here(
        "shift_benchmark.py",
        f"--run_dir={bucket}/seed0,{bucket}/more",
        "--corruptions=fog",
        "--severities=2",
        "--num_examples=40",
        "--keep_predictions=float16",
    )
    assert done.returncode == 0, done.stderr
    options = shift.shift_options(["fog"], [2], 40)
    for folder in shift.find_runs(bucket):
        assert folder.startswith(bucket)
        assert shift.has_shift(folder, **options)
        names = [path.name for path in files.as_path(folder).iterdir()]
        assert set(FILES) <= set(names)
    assert files.as_path(f"{bucket}/shift_ece_ts.png").exists()
    assert not os.path.exists("ram:")


def test_other_weights_in_the_same_folder_are_noticed(
    runs, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    shutil.copytree(runs / "seed0", run)
    options = {"corruptions": ["contrast"], "severities": [1], "verbose": False}
    shift.benchmark_run(run, **options)
    path = run / "predictions" / "contrast_1.npz"
    before, _ = ct.evaluation.load_predictions(path)
    restore_model = ct.training.restore_model

    def restore_others(folder, model):
        checkpoint = restore_model(folder, model)
        for weight in model.trainable_weights:
            weight.assign(1.2 * weight)
        return checkpoint

    monkeypatch.setattr(ct.training, "restore_model", restore_others)
    with pytest.warns(UserWarning, match="calibration.npz is of another"):
        shift.benchmark_run(run, **options)
    after, _ = ct.evaluation.load_predictions(path)
    assert np.abs(after - before).max() > 0.1


def write_run(folder, shifts, num_examples):
    """A run of 20 test examples, measured under some shifts."""
    predictions = folder / "predictions"
    ct.evaluation.save_predictions(
        predictions / "test.npz",
        np.zeros((20, 3), np.float32),
        np.zeros(20, np.int64),
    )
    description = {"num_examples": num_examples}
    (predictions / "shift.json").write_text(json.dumps(description))
    rows = [
        {
            "dataset": "digits",
            "corruption": corruption,
            "severity": severity,
            "calibrator": "none",
            "metric": "ece",
            "value": 0.1,
        }
        for corruption, severity in shifts
    ]
    (folder / "shift.csv").write_text(ct.evaluation.shift_csv(rows))


def test_what_was_measured_is_known(tmp_path):
    def is_finished(*asked):
        return shift.has_shift(tmp_path, **shift.shift_options(*asked))

    assert not is_finished(["fog"], [1])

    shifts = [("none", 0), ("fog", 1), ("fog", 2), ("snow", 1)]
    write_run(tmp_path, shifts, 20)
    assert is_finished(["fog"], [1, 2])
    assert is_finished(["fog", "snow"], [1], 20)
    # All that there are.
    assert is_finished(["fog", "snow"], [1], 500)
    assert not is_finished(["fog", "snow"], [1, 2])
    assert not is_finished(["fog"], [1], 10)
    write_run(tmp_path, shifts, 10)
    assert is_finished(["fog"], [1], 10)
    assert not is_finished(["fog"], [1])


def test_what_is_asked_of_shift_is_checked():
    with pytest.raises(ValueError, match="mean 'fog'.*shift_corruptions='fgo'"):
        shift.shift_options(["fgo"], [1])
    with pytest.raises(ValueError, match="shift_severities=6"):
        shift.shift_options(["fog"], [6])
    with pytest.raises(ValueError, match="shift_examples=0"):
        shift.shift_options(["fog"], [1], 0)
