import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pandas as pd
import pytest

import caltrain_tf as ct
from caltrain_tf import files
from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.experiments import (
    prediction_files,
    robustness_metrics,
    shift,
    statistics,
)
from tests.baselines.scripts import run_here

# So short a training determines no temperature.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FILES = (
    "robustness_metrics.json",
    "shift.csv",
    "shift_accuracy.png",
    "shift_ece.png",
)
CORRUPTIONS = ("gaussian_noise", "contrast", "snow")
SEVERITIES = (1, 5)


@pytest.fixture(scope="module")
def data():
    return make_data()


def make_data():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 230)
    images = rng.integers(0, 120, (230, 16, 16, 3))
    # The class is the channel that is a little brighter.
    images[np.arange(230), :, :, labels] += 4
    images = images.astype(np.uint8)
    return ct.data.ArrayData(
        "mine",
        {
            "calibration": (images[:100], labels[:100]),
            "test": (images[100:], labels[100:]),
        },
    )


def network():
    """Over-confident; another network in training mode."""
    model = keras.Sequential(
        [
            keras.Input([16, 16, 3]),
            keras.layers.Dropout(0.9),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3),
        ]
    )
    model.layers[-1].kernel.assign(500 * np.eye(3))
    return model


class Counted(ct.data.GeneratedSets):
    """Knows which sets were made."""

    def __init__(self, data, **options):
        super().__init__(data, **options)
        self.made = []

    def eval_input(self, corruption, severity, *args, **options):
        self.made.append(f"{corruption}_{severity}")
        return super().eval_input(corruption, severity, *args, **options)


def evaluate(data, folder=None, **options):
    return shift.evaluate(
        options.pop("model", None) or network(),
        data,
        **{
            "corruptions": CORRUPTIONS,
            "severities": SEVERITIES,
            "batch_size": 64,
            "predictions_dir": folder,
            **options,
        },
    )


@pytest.fixture(scope="module")
def measured(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictions")
    return evaluate(data, folder), folder


def same(rows, others, atol=1e-5):
    keys = shift.COLUMNS[:-1]
    pd.testing.assert_frame_equal(
        rows[keys].reset_index(drop=True), others[keys].reset_index(drop=True)
    )
    np.testing.assert_allclose(rows["value"], others["value"], atol=atol)


def test_networks_that_cannot_be_trained_here(data, measured):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = network()
    finally:
        keras.config.set_dtype_policy("float32")
    model.trainable = False
    options = {"corruptions": ["contrast"], "severities": [1]}
    rows = evaluate(data, model=model, **options)
    kept = measured[0]
    kept = kept[kept["corruption"].isin(["none", "contrast"])]
    same(rows, kept[kept["severity"] < 5], atol=0.05)


def naive_metrics(logits, labels):
    logits = logits.astype(float)
    logits -= logits.max(axis=1, keepdims=True)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    count = len(labels)
    onehot = np.eye(logits.shape[1])[labels]
    confidence, right = probs.max(1), probs.argmax(1) == labels
    # Equal mass: the bins' edges are confidences, ties go to the upper bin.
    cuts = np.round(np.linspace(0, count, 15, endpoint=False)).astype(int)
    edges = np.sort(confidence)[np.minimum(cuts, count - 1)[1:]]
    bins = np.searchsorted(edges, confidence, side="right")
    error = 0.0
    for here in (bins == number for number in np.unique(bins)):
        gap = confidence[here].mean() - right[here].mean()
        error += here.mean() * gap**2
    return {
        "accuracy": right.mean(),
        "nll": -np.log(probs[np.arange(count), labels]).mean(),
        "brier": ((probs - onehot) ** 2).sum(axis=1).mean(),
        "ece": np.sqrt(error),
    }


def test_values_are_those_of_the_saved_predictions(measured):
    rows, folder = measured
    temperatures = {"none": 1.0}
    calibration = prediction_files.load(folder / "calibration.npz")
    for name, objective in (("ts", "nll"), ("ts_sb_ece", "sb_ece")):
        scaler = ct.posthoc.TemperatureScaling(objective).fit(*calibration)
        temperatures[name] = scaler.temperature_
    assert temperatures["ts"] > 1.1
    expected = []
    sets = [("none", 0), *((c, s) for c in CORRUPTIONS for s in SEVERITIES)]
    for corruption, severity in sets:
        name = f"{corruption}_{severity}" if severity else "test"
        logits, labels = prediction_files.load(folder / f"{name}.npz")
        assert logits.shape == (130, 3)
        for calibrator, temperature in temperatures.items():
            values = naive_metrics(logits / temperature, labels)
            for metric, value in values.items():
                expected.append(
                    ("mine", corruption, severity, calibrator, metric, value)
                )
    assert len(rows) == 7 * 3 * 4
    same(rows, pd.DataFrame(expected, columns=shift.COLUMNS), atol=2e-6)


def test_sets_that_are_there_are_not_computed_again(measured, data):
    rows, folder = measured
    sets = Counted(data)
    same(evaluate(data, folder, sets=sets), rows, atol=0)
    assert sets.made == []
    # Half-written files do not count.
    whole = (folder / "snow_5.npz").read_bytes()
    (folder / "snow_5.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "contrast_1.npz").unlink()
    same(evaluate(data, folder, sets=sets), rows)
    assert sets.made == ["contrast_1", "snow_5"]


def test_predictions_may_be_left_out(measured, data, tmp_path):
    rows = evaluate(data, tmp_path, keep_predictions=False, severities=[5])
    same(rows, measured[0][measured[0]["severity"] != 1])
    assert {path.name for path in tmp_path.iterdir()} == {
        "calibration.npz",
        "shift.json",
        "test.npz",
    }


def test_replicas_and_batch_sizes_change_nothing(measured, data, two_replicas):
    rows, options = measured[0], {"severities": [5]}
    rows = rows[rows["severity"] != 1]
    same(evaluate(data, batch_size=37, **options), rows)
    with two_replicas.scope():
        model = network()
    options |= {"model": model, "strategy": two_replicas}
    same(evaluate(data, batch_size=63, **options), rows)


def test_predictions_of_something_else_are_dropped(data, tmp_path):
    first = {"corruptions": ["contrast", "fog"], "severities": [1]}
    evaluate(data, tmp_path, **first)
    sets = Counted(data, seed=1)
    second = {"corruptions": ["contrast"], "severities": [1]}
    evaluate(data, tmp_path, sets=sets, **second)
    assert sets.made == ["contrast_1"]
    assert not (tmp_path / "fog_1.npz").exists()


def test_a_look_at_few_examples_keeps_the_others(data, tmp_path):
    options = {"corruptions": ["contrast", "snow"], "severities": [1]}
    rows = evaluate(data, tmp_path, **options)
    sets = Counted(data)
    look = {"corruptions": ["contrast"], "severities": [1], "num_examples": 20}
    few = evaluate(data, tmp_path, sets=sets, **look)
    assert sets.made == [] and not few["value"].equals(rows["value"])
    same(few, evaluate(data, **look))
    same(evaluate(data, tmp_path, sets=sets, **options), rows)
    assert sets.made == []
    # What was stored of few examples is computed for more.
    (tmp_path / "contrast_1.npz").unlink()
    evaluate(data, tmp_path, sets=sets, **look)
    same(evaluate(data, tmp_path, sets=sets, **options), rows)
    assert sets.made == ["contrast_1", "contrast_1"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"severities": (1, 9)}, "`severities` must be.*severities=9"),
        ({"corruptions": ("snow", "fogg")}, "Did you mean 'fog'"),
    ],
)
def test_bad_arguments_are_errors_before_anything_is_removed(
    measured, data, change, message
):
    _, folder = measured
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ValueError, match=message):
        evaluate(data, folder, **{"num_examples": 5, **change})
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """Two seeds of an objective, and a run that is not finished."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(trained, folder / "seed0")
    shutil.copytree(trained, folder / "more" / "seed1")
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="finished run.*unfinished"):
        shift.find_runs([folder / "unfinished"])
    return folder


def test_the_network_is_that_of_the_results(runs):
    _, data, model = shift.load_run(runs / "seed0")
    rows = shift.evaluate(model, data, corruptions=[])
    results = json.loads((runs / "seed0" / "results.json").read_text())
    rows = rows[rows["calibrator"] == "none"].set_index("metric")["value"]
    for metric in ("accuracy", "nll", "brier", "ece"):
        assert rows[metric] == pytest.approx(results[metric], abs=1e-4)


def test_the_script_measures_runs(runs):
    done = run_here(
        "shift_benchmark.py",
        f"--run_dir={runs / 'seed0'},{runs / 'more'}",
        "--corruptions=contrast,shot_noise",
        "--severities=1,4",
        "--num_examples=100",
    )
    assert done.returncode == 0, done.stderr
    assert "frost of a generated texture" in done.stdout
    assert "4/4" in done.stderr
    for folder in shift.find_runs([runs]):
        assert set(FILES) <= set(os.listdir(folder))
        text = pathlib.Path(folder, "shift.csv").read_text()
        assert text.startswith(
            ",".join(shift.COLUMNS) + "\ndigits,none,0,none,"
        )
        rows = pd.read_csv(os.path.join(folder, "shift.csv"))
        assert len(rows) == 5 * 3 * 4
        with open(os.path.join(folder, "robustness_metrics.json")) as file:
            report = json.load(file)
        ece = rows[
            (rows["metric"] == "ece")
            & (rows["calibrator"] == "ts")
            & (rows["severity"] > 0)
        ]["value"]
        reported = report["digits_c/caltrain_ece_ts/mean"]
        assert reported == pytest.approx(ece.mean())
        path = os.path.join(folder, "predictions", "shot_noise_4.npz")
        logits, labels = prediction_files.load(path)
        assert logits.shape == (100, 10) and labels.shape == (100,)


def test_the_script_reads_published_sets_and_may_keep_nothing(runs, tmp_path):
    _, data, model = shift.load_run(runs / "seed0")
    images, labels, _ = next(iter(data.eval_batches("test", 600)))
    # Five severities, the third of which is the clean set in another order.
    arrays = np.zeros((5, *images.shape), np.uint8)
    arrays[2] = images[::-1]
    np.save(tmp_path / "fog.npy", arrays.reshape(-1, *images.shape[1:]))
    np.save(tmp_path / "labels.npy", np.tile(labels[::-1], 5))
    run = tmp_path / "run"
    shutil.copytree(runs / "seed0", run)

    def measure(*arguments):
        done = run_here(
            "shift_benchmark.py",
            f"--run_dir={run}",
            "--corruptions=fog",
            "--severities=3",
            "--batch_size=128",
            "--nokeep_predictions",
            *arguments,
        )
        assert done.returncode == 0, done.stderr
        assert not (run / "predictions" / "fog_3.npz").exists()
        rows = pd.read_csv(run / "shift.csv").query("calibrator == 'none'")
        rows = rows.pivot(index="metric", columns="severity", values="value")
        return rows[0], rows[3]

    clean, same_images = measure(f"--corrupted_dir={tmp_path}")
    np.testing.assert_allclose(same_images, clean, atol=1e-4)
    clean, foggy = measure("--generated")
    assert abs(foggy["nll"] - clean["nll"]) > 0.01


def test_runs_may_be_in_a_bucket(runs):
    bucket = "ram://shifted"
    for path in (runs / "more").rglob("*"):
        if path.is_file() and path.suffix != ".png":
            name = path.relative_to(runs).as_posix()
            files.write_bytes(f"{bucket}/{name}", path.read_bytes())
    done = run_here(
        "shift_benchmark.py",
        f"--run_dir={bucket}",
        "--corruptions=fog",
        "--severities=2",
        "--num_examples=40",
    )
    assert done.returncode == 0, done.stderr
    (folder,) = shift.find_runs([bucket])
    assert folder.startswith(bucket)
    names = [path.name for path in files.as_path(folder).iterdir()]
    assert set(FILES) <= set(names)
    assert not os.path.exists("ram:")


def random_rows(dataset, names=NAMES, severities=range(1, 6)):
    rng = np.random.default_rng(0)
    sets = [("none", 0), *((name, s) for name in names for s in severities)]
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "corruption": corruption,
                "severity": severity,
                "calibrator": calibrator,
                "metric": metric,
                "value": float(rng.random()),
            }
            for corruption, severity in sets
            for calibrator in ("none", "ts", "ts_sb_ece")
            for metric in ("accuracy", "nll", "brier", "ece")
        ]
    )


def values_of(rows, metric, calibrator, clean):
    return rows[
        (rows["metric"] == metric)
        & (rows["calibrator"] == calibrator)
        & ((rows["severity"] == 0) == clean)
    ]["value"]


def test_keys_are_those_of_robustness_metrics():
    # The four extra corruptions are not part of its reports.
    rows = random_rows("cifar10", (*NAMES, "spatter"))
    report = robustness_metrics.robustness_report(rows)
    rows = rows[rows["corruption"] != "spatter"]
    for suffix, calibrator in (("", "none"), ("_ts", "ts")):
        (clean,) = values_of(rows, "ece", calibrator, True)
        assert report[f"cifar10/ece{suffix}"] == clean
        shifted = values_of(rows, "ece", calibrator, False)
        assert len(shifted) == 75
        key = f"cifar10_c/ece{suffix}"
        assert report[f"{key}/mean"] == pytest.approx(np.mean(shifted))
        assert report[f"{key}/std"] == pytest.approx(np.std(shifted))
        assert report[f"{key}/count"] == 75
    assert len(report) == 12 + 3 * 12


def test_imagenet_has_the_mean_corruption_error():
    rows = random_rows("imagenet")
    report = robustness_metrics.robustness_report(rows)
    accuracy = {
        name: np.mean(
            values_of(
                rows[rows["corruption"] == name],
                "accuracy",
                "none",
                False,
            )
        )
        for name in NAMES
    }
    fog = (1 - accuracy["fog"]) / 0.819
    assert report["imagenet_c/fog/ce"] == pytest.approx(fog)
    ratios = [report[f"imagenet_c/{name}/ce"] for name in NAMES]
    assert report["imagenet_c/mce"] == pytest.approx(np.mean(ratios))
    (clean,) = values_of(rows, "accuracy", "none", True)
    relative = (clean - accuracy["snow"]) / (0.867 - 0.4348)
    key = "imagenet_c/snow/relative_ce"
    assert report[key] == pytest.approx(relative)
    some = robustness_metrics.robustness_report(
        random_rows("imagenet", NAMES[:3])
    )
    assert "imagenet_c/mce" not in some
    # AlexNet's errors are those on the published images.
    made = robustness_metrics.robustness_report(rows, is_generated=True)
    assert "imagenet_c/mce" not in made and "imagenet_c/ece/mean" in made


def test_the_table_has_a_column_a_severity():
    rows = random_rows("cifar10", severities=(1, 3))
    table = shift.severity_table(rows)
    first, *others = table.splitlines()
    assert first.split()[-5:] == ["clean", "severity", "1", "severity", "3"]
    assert len(others) == 1 + 3 * 3 + 2
    ece = next(line for line in others if line.startswith("ECE (%), TS-SB-ECE"))
    row = statistics.shift_by_calibrator(rows).iloc[-1]
    text = f"{100 * row['mean']:.2f} ± {100 * row['error']:.2f}"
    assert ece.endswith(text)
