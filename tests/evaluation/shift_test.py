import itertools
import json
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.evaluation.shift_file import COLUMNS

CORRUPTIONS = ("gaussian_noise", "contrast", "snow")
SEVERITIES = (1, 5)


@pytest.fixture(scope="module")
def data():
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
        self.lock = threading.Lock()

    def __call__(self, images):
        tf.py_function(self.count, [tf.shape(images)[0]], [])
        return 500 * tf.reduce_mean(images, axis=[1, 2])

    def count(self, number):
        # Two batches run at once.
        with self.lock:
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
        def walk(self, *args):
            # In the third set of six, of three batches each.
            yield from itertools.islice(super().walk(*args), 7)
            raise KeyboardInterrupt

    turns = sys.getswitchinterval()
    with pytest.raises(KeyboardInterrupt):
        evaluate(Network(), data, tmp_path, sets=Interrupted(data))
    assert sys.getswitchinterval() == turns
    shifted = {path.name for path in tmp_path.glob("*_[1-5].npz")}
    assert shifted == {"gaussian_noise_1.npz", "gaussian_noise_5.npz"}
    network = Network()
    assert evaluate(network, data, tmp_path) == rows
    assert network.examples == 2 * 64 + 4 * 192


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
    assert "2/2 sets" in capsys.readouterr().err
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
