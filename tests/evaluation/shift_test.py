import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf import evaluation, files
from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.evaluation.shift import COLUMNS
from caltrain_tf.experiments import statistics

CORRUPTIONS = ("gaussian_noise", "contrast", "snow")
SEVERITIES = (1, 5)
METRICS = ("accuracy", "nll", "brier", "ece")


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


class Network:
    """Counts its calls; over-confident."""

    def __init__(self):
        self.examples = 0

    def __call__(self, images):
        tf.py_function(self.count, [tf.shape(images)[0]], [])
        return 500 * tf.reduce_mean(images, axis=[1, 2])

    def count(self, number):
        self.examples += int(number)


def evaluate(network, data, folder=None, **options):
    return ct.evaluation.evaluate_shift(
        network,
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
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictions")
    return evaluate(Network(), data, folder), folder


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


def test_values_are_those_of_the_saved_predictions(run):
    rows, folder = run
    sets = [("none", 0), *((c, s) for c in CORRUPTIONS for s in SEVERITIES)]
    temperatures = {"none": 1.0}
    calibration = np.load(folder / "calibration.npz")
    for name, objective in (("ts", "nll"), ("ts_sb_ece", "sb_ece")):
        scaler = ct.posthoc.TemperatureScaling(objective)
        scaler.fit(calibration["logits"], calibration["labels"])
        temperatures[name] = scaler.temperature_
    assert temperatures["ts"] > 1.1
    expected = []
    for corruption, severity in sets:
        name = f"{corruption}_{severity}" if severity else "test"
        with np.load(folder / f"{name}.npz") as file:
            assert file["logits"].dtype == np.float32
            assert file["labels"].dtype == np.int64
            logits, labels = file["logits"], file["labels"]
        assert logits.shape == (130, 3)
        for calibrator, temperature in temperatures.items():
            values = naive_metrics(logits / temperature, labels)
            for metric, value in values.items():
                expected.append(
                    ("mine", corruption, severity, calibrator, metric, value)
                )
    assert len(rows) == len(expected) == 7 * 3 * 4
    for row, (*keys, value) in zip(rows, expected, strict=True):
        assert [row[column] for column in COLUMNS[:-1]] == keys
        assert row["value"] == pytest.approx(value, abs=2e-6)


def test_the_file_has_the_fixed_columns(run, tmp_path):
    rows, _ = run
    path = tmp_path / "shift.csv"
    path.write_text(ct.evaluation.shift_csv(rows))
    lines = path.read_text().splitlines()
    assert lines[0] == "dataset,corruption,severity,calibrator,metric,value"
    assert lines[1].startswith("mine,none,0,none,accuracy,")
    assert len(lines) == 1 + len(rows)
    assert ct.evaluation.read_shift_csv(path) == rows
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns.*Received: .*'a', 'b'"):
        ct.evaluation.read_shift_csv(path)


def test_sets_that_are_there_are_not_computed_again(run, data):
    rows, folder = run
    network = Network()
    assert evaluate(network, data, folder) == rows
    # Only whether it gives the first of the two clean splits.
    assert network.examples == 2 * 64
    network = Network()
    # Half-written files do not count.
    whole = (folder / "snow_5.npz").read_bytes()
    (folder / "snow_5.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "contrast_1.npz").unlink()
    (folder / "contrast_1.npz.tmp").write_bytes(whole[:100])
    assert evaluate(network, data, folder) == rows
    assert network.examples == 2 * 64 + 2 * 192
    assert not (folder / "contrast_1.npz.tmp").exists()


def test_sets_before_an_interruption_are_kept(run, data, tmp_path):
    rows, folder = run

    class Interrupted(ct.data.GeneratedSets):
        def batches(self, corruption, severity, *args, **options):
            if (corruption, severity) == ("contrast", 1):
                raise KeyboardInterrupt
            return super().batches(corruption, severity, *args, **options)

    with pytest.raises(KeyboardInterrupt):
        evaluate(Network(), data, tmp_path, sets=Interrupted(data))
    shifted = {path.name for path in tmp_path.glob("*_[1-5].npz")}
    assert shifted == {"gaussian_noise_1.npz", "gaussian_noise_5.npz"}
    network = Network()
    assert evaluate(network, data, tmp_path) == rows
    assert network.examples == 2 * 64 + 4 * 192


def test_a_program_that_an_error_stops_in_the_middle_ends(tmp_path):
    # The input pipeline must not wait for Python when that is gone.
    script = tmp_path / "stops.py"
    script.write_text(
        "import numpy as np, tensorflow as tf, caltrain_tf as ct\n"
        "images = np.zeros((640, 32, 32, 3), np.uint8)\n"
        "test = (images, images[:, 0, 0, 0])\n"
        "data = ct.data.ArrayData('mine', {'test': test})\n"
        "calls = []\n"
        "def count(x):\n"
        "    calls.append(1)\n"
        "    assert len(calls) < 15, 'in the middle'\n"
        "    return np.float32(0)\n"
        "def network(x):\n"
        "    zero = tf.numpy_function(count, [x[0, 0, 0, 0]], tf.float32)\n"
        "    return tf.reduce_mean(x, [1, 2]) + zero\n"
        "ct.evaluation.evaluate_shift(\n"
        "    network, data, calibrators={}, batch_size=64,\n"
        "    corruptions=['elastic_transform'])\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert "in the middle" in done.stderr


def test_predictions_are_kept_in_half_the_bytes_or_not_at_all(
    run, data, tmp_path
):
    rows, folder = run
    half = evaluate(
        Network(), data, tmp_path / "half", keep_predictions="float16"
    )
    with np.load(tmp_path / "half" / "snow_5.npz") as file:
        assert file["logits"].dtype == np.float16
        kept = file["logits"].astype(float)
    with np.load(folder / "snow_5.npz") as file:
        # Half of the distance between numbers of float16 near 300.
        np.testing.assert_allclose(kept, file["logits"], atol=0.13)
    # From the files, the same to the last digit.
    network = Network()
    again = evaluate(
        network, data, tmp_path / "half", keep_predictions="float16"
    )
    assert again == half and network.examples == 2 * 64
    none = evaluate(Network(), data, tmp_path / "none", keep_predictions="no")
    assert none == rows
    assert {path.name for path in (tmp_path / "none").iterdir()} == {
        "calibration.npz",
        "shift.json",
        "test.npz",
    }
    with pytest.raises(ValueError, match="keep_predictions='int8'"):
        evaluate(Network(), data, keep_predictions="int8")


def test_predictions_may_be_in_a_bucket(run, data):
    rows, _ = run
    options = {"corruptions": ["snow"], "severities": [5]}
    first = evaluate(Network(), data, "ram://run/predictions", **options)
    assert first == rows[:12] + rows[-12:]
    network = Network()
    again = evaluate(network, data, "ram://run/predictions", **options)
    assert again == first and network.examples == 2 * 64
    path = "ram://run/shift.csv"
    files.write_text(path, evaluation.shift_csv(first))
    assert evaluation.read_shift_csv(path) == first


def test_a_strategy_and_several_batches_per_call_change_nothing(
    run, data, two_replicas
):
    rows, _ = run
    for strategy, batches_per_call in (
        (two_replicas, 1),
        (two_replicas, 2),
        (None, 2),
    ):
        others = evaluate(
            lambda images: 500 * tf.reduce_mean(images, axis=[1, 2]),
            data,
            strategy=strategy,
            batches_per_call=batches_per_call,
            batch_size=63,
            severities=[5],
        )
        expected = [row for row in rows if row["severity"] in (0, 5)]
        for row, other in zip(expected, others, strict=True):
            assert row["value"] == pytest.approx(other["value"], abs=1e-5)


def test_several_workers_measure_what_one_does(run, tmp_path):
    rows, _ = run
    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys, tensorflow as tf\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "from tests.evaluation import shift_test\n"
        "rows = shift_test.evaluate(\n"
        "    lambda images: 500 * tf.reduce_mean(images, axis=[1, 2]),\n"
        "    shift_test.make_data(), sys.argv[1], corruptions=['snow'],\n"
        "    strategy=strategy, batches_per_call=2)\n"
        "print(json.dumps(rows))\n"
    )
    workers = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            workers.append(f"localhost:{free.getsockname()[1]}")
    root = pathlib.Path(__file__).parents[2]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        cluster = {"cluster": {"worker": workers}, "task": task}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps(cluster),
            "PYTHONPATH": str(root),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, script, tmp_path / "predictions"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    expected = rows[:12] + rows[-24:]
    for process in processes:
        try:
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
        assert process.returncode == 0, errors[-3000:]
        for row, other in zip(expected, json.loads(output), strict=True):
            assert row["value"] == pytest.approx(other["value"], abs=1e-5)
    assert (tmp_path / "predictions" / "snow_5.npz").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"num_examples": 50},
        {"description": {"checkpoint": "ckpt-2"}},
        {"seed": 1},
    ],
)
def test_predictions_of_something_else_are_dropped(data, tmp_path, change):
    first = {"corruptions": ["contrast", "fog"], "severities": [1]}
    evaluate(Network(), data, tmp_path, **first)
    network = Network()
    if "seed" in change:
        change = {"sets": ct.data.GeneratedSets(data, **change)}
    second = {"corruptions": ["contrast"], "severities": [1], **change}
    evaluate(network, data, tmp_path, **second)
    assert network.examples > 0
    assert not (tmp_path / "fog_1.npz").exists()
    assert "source" in json.loads((tmp_path / "shift.json").read_text())


def keras_model():
    import keras

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


def test_predictions_of_other_weights_are_dropped(data, tmp_path):
    model = keras_model()
    options = {"corruptions": ["contrast"], "severities": [1]}
    rows = evaluate(model, data, tmp_path, **options)
    path = tmp_path / "contrast_1.npz"
    before = path.stat().st_mtime_ns
    assert evaluate(model, data, tmp_path, **options) == rows
    assert path.stat().st_mtime_ns == before
    # A change that the first predictions hardly show.
    kernel = model.layers[-1].kernel
    kernel.assign(kernel + 1e-3)
    evaluate(model, data, tmp_path, **options)
    assert path.stat().st_mtime_ns > before
    # And one that they do: temperatures are those of the new weights.
    kernel.assign(3 * kernel)
    with pytest.warns(UserWarning, match="(calibration|test).npz is of ano"):
        again = evaluate(model, data, tmp_path, **options)
    fresh = evaluate(model, data, **options)
    assert [row["value"] for row in again] == pytest.approx(
        [row["value"] for row in fresh], abs=1e-6
    )
    assert again != rows


def test_clean_predictions_of_another_function_are_not_taken(data, tmp_path):
    options = {"corruptions": ["contrast", "fog"], "severities": [1]}
    evaluate(Network(), data, tmp_path, **options)

    def other(images):
        return 300 * tf.reduce_mean(images, axis=[1, 2])

    with pytest.warns(UserWarning, match="npz is of another network"):
        rows = evaluate(other, data, tmp_path, corruptions=[])
    assert not (tmp_path / "fog_1.npz").exists()
    fresh = evaluate(other, data, corruptions=[])
    assert [row["value"] for row in rows] == pytest.approx(
        [row["value"] for row in fresh], abs=1e-6
    )


def test_clean_predictions_of_other_data_are_not_taken(data, tmp_path):
    evaluate(Network(), data, tmp_path, corruptions=[])
    logits, labels = ct.evaluation.load_predictions(tmp_path / "test.npz")
    for stored in (
        (logits[:-1], labels[:-1]),
        (logits, (labels + 1) % 3),
        (logits[:, :2], labels % 2),
    ):
        ct.evaluation.save_predictions(tmp_path / "test.npz", *stored)
        with pytest.warns(UserWarning, match="test.npz is of another"):
            evaluate(Network(), data, tmp_path, corruptions=[])
        again, _ = ct.evaluation.load_predictions(tmp_path / "test.npz")
        np.testing.assert_allclose(again, logits, rtol=1e-5)


def test_the_first_examples_alone_are_those_of_all(run, data):
    _, folder = run
    seen = {}

    class Keeper:
        def transform(self, logits):
            seen.setdefault("logits", []).append(logits)
            return logits

    options = {"corruptions": ["snow"], "severities": [5], "num_examples": 70}
    rows = evaluate(Network(), data, calibrators={"kept": Keeper()}, **options)
    assert {row["calibrator"] for row in rows} == {"none", "kept"}
    clean, snow = seen["logits"]
    for logits, name in ((clean, "test"), (snow, "snow_5")):
        with np.load(folder / f"{name}.npz") as file:
            np.testing.assert_allclose(logits, file["logits"][:70], atol=1e-4)


def test_batch_sizes_change_nothing(run, data):
    rows, _ = run
    others = evaluate(Network(), data, batch_size=37)
    for row, other in zip(rows, others, strict=True):
        assert row["value"] == pytest.approx(other["value"], abs=1e-5)


def test_a_keras_model_runs_in_inference_mode(data):
    model = keras_model()
    options = {
        "corruptions": ["contrast"],
        "severities": [3],
        "calibrators": {},
    }
    assert evaluate(model, data, **options) == evaluate(model, data, **options)


def test_bad_arguments_are_errors(data):
    with pytest.raises(ValueError, match="num_examples=0"):
        evaluate(Network(), data, num_examples=0)
    with pytest.raises(ValueError, match="Did you mean 'snow'"):
        evaluate(Network(), data, corruptions=["snows"])


def test_progress_is_shown_when_asked_for(data, capsys):
    options = {"corruptions": ["contrast"], "severities": [1, 2]}
    evaluate(Network(), data, verbose=True, **options)
    assert "2/2" in capsys.readouterr().err
    evaluate(Network(), data, **options)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "change, message",
    [
        ({"severities": (1, 9)}, "`severity` must be.*severity=9"),
        ({"corruptions": ("snow", "fogg")}, "Did you mean 'fog'"),
    ],
)
def test_unknown_sets_are_errors_before_anything_is_removed(
    data, tmp_path, change, message
):
    evaluate(Network(), data, tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        evaluate(Network(), data, tmp_path, num_examples=5, **change)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def severity_rows(values, severity=1, metric="ece"):
    """Rows of `(corruptions, calibrators)`."""
    return [
        {
            "dataset": "cifar10",
            "corruption": f"corruption{subject}",
            "severity": severity,
            "calibrator": f"calibrator{condition}",
            "metric": metric,
            "value": value,
        }
        for (subject, condition), value in np.ndenumerate(values)
    ]


def test_means_by_severity():
    values = np.random.default_rng(0).random((4, 3))
    rows = severity_rows(values) + severity_rows(values[:1], severity=0)
    rows += severity_rows(values, metric="nll")
    means = evaluation.means_by_severity(rows)
    assert [row["severity"] for row in means] == [0] * 3 + [1] * 3
    assert [row["count"] for row in means] == [1] * 3 + [4] * 3
    np.testing.assert_allclose([row["mean"] for row in means[:3]], values[0])
    np.testing.assert_allclose(
        [row["mean"] for row in means[3:]], values.mean(axis=0)
    )
    error = statistics.masson_loftus_error(values)
    assert all(row["error"] == error for row in means[3:])
    assert all(np.isnan(row["error"]) for row in means[:3])


def test_runs_are_compared_over_seeds():
    rng = np.random.default_rng(0)
    seeds = [rng.random((4, 2)) for _ in range(3)]
    runs = [("nll", severity_rows(values)) for values in seeds[:2]]
    runs.append(("focal", severity_rows(seeds[2])))
    rows = evaluation.compare_runs(runs, "ece", "calibrator1")
    by_name = {row["objective"]: row for row in rows}
    means = [values[:, 1].mean() for values in seeds]
    assert by_name["nll"]["mean"] == pytest.approx(np.mean(means[:2]))
    assert by_name["nll"]["count"] == 2
    expected = abs(means[0] - means[1]) / 2
    assert by_name["nll"]["error"] == pytest.approx(expected)
    assert by_name["focal"]["mean"] == pytest.approx(means[2])
    assert np.isnan(by_name["focal"]["error"])


def test_the_order_of_rows_does_not_matter():
    values = np.random.default_rng(0).random((4, 3))
    rows = severity_rows(values)
    expected = evaluation.means_by_severity(rows)
    by_name = sorted(rows[3:], key=lambda row: row["value"])
    means = evaluation.means_by_severity(rows[:3] + by_name)
    for row, other in zip(means, expected, strict=True):
        assert row["calibrator"] == other["calibrator"]
        assert row["mean"] == pytest.approx(other["mean"])
        assert row["error"] == pytest.approx(other["error"])


def test_calibrators_of_other_corruptions_are_an_error():
    rows = severity_rows(np.ones((3, 2)))
    with pytest.raises(ValueError, match="'calibrator0'.*for 'calibrator1'"):
        evaluation.means_by_severity(rows[:-1])
    # As many, but others.
    rows[-1]["corruption"] = "corruption7"
    with pytest.raises(ValueError, match="severity 1.*'corruption7'"):
        evaluation.means_by_severity(rows)
    with pytest.raises(ValueError, match="two of corruption='corruption0'"):
        evaluation.means_by_severity(2 * severity_rows(np.ones((3, 2))))


def test_runs_of_other_sets_are_not_compared():
    rows = severity_rows(np.ones((3, 2)))
    other = [{**row, "dataset": "cifar100"} for row in rows]
    message = "data set. Received: 'nll' with cifar10 .*'focal'.*cifar100"
    with pytest.raises(ValueError, match=message):
        evaluation.compare_runs([("nll", rows), ("focal", other)])
    for other, message in (
        (
            severity_rows(np.ones((2, 2))),
            "with corruption2 1 that.*has nothing",
        ),
        (
            severity_rows(np.ones((3, 2)), severity=2),
            "corruption0 2, corruption1 2",
        ),
    ):
        with pytest.raises(ValueError, match=f"severities.*{message}"):
            evaluation.compare_runs([("nll", rows), ("focal", other)])
    with pytest.raises(ValueError, match="`runs` must hold"):
        evaluation.compare_runs([])


def test_a_metric_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="metric='brier'"):
        evaluation.means_by_severity(severity_rows(np.ones((2, 2))), "brier")


def random_rows(dataset, names=NAMES, severities=range(1, 6)):
    rng = np.random.default_rng(0)
    sets = [("none", 0), *((name, s) for name in names for s in severities)]
    return [
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
        for metric in METRICS
    ]


def values_of(rows, metric, calibrator, clean):
    return [
        row["value"]
        for row in rows
        if (row["metric"], row["calibrator"]) == (metric, calibrator)
        and (row["severity"] == 0) == clean
    ]


def test_keys_are_those_of_robustness_metrics():
    # The four extra corruptions are not part of its reports.
    rows = random_rows("cifar10", (*NAMES, "spatter"))
    report = evaluation.robustness_report(rows)
    rows = [row for row in rows if row["corruption"] != "spatter"]
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
    report = evaluation.robustness_report(rows)
    accuracy = {
        name: np.mean(
            values_of(
                [row for row in rows if row["corruption"] == name],
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
    some = evaluation.robustness_report(random_rows("imagenet", NAMES[:3]))
    assert "imagenet_c/mce" not in some
    # It is defined for the published images.
    generated = evaluation.robustness_report(rows, generated=True)
    assert not any("/mce" in key for key in generated)
    assert "imagenet_c/ece/mean" in generated


def test_the_table_has_a_column_a_severity():
    rows = random_rows("cifar10", severities=(1, 3))
    table = evaluation.severity_table(rows)
    first, *others = table.splitlines()
    assert first.split()[-5:] == ["clean", "severity", "1", "severity", "3"]
    assert len(others) == 1 + 3 * 3 + 3
    assert "all calibrators\nof a severity share it" in table
    ece = next(line for line in others if line.startswith("ECE (%), TS-SB-ECE"))
    row = evaluation.means_by_severity(rows, "ece")[-1]
    text = f"{100 * row['mean']:.2f} ± {100 * row['error']:.2f}"
    assert ece.endswith(text)
