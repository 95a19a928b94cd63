"""Against the real package, where it is installed."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.data import imagenet
from caltrain_tf.experiments import robustness_metrics as adapter
from caltrain_tf.experiments import uncertainty_baselines

NAMES = ct.data.corruptions.NAMES


def predictions(seed, size=300):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(size, 10)).astype("float32")
    labels = [rng.choice(10, p=row) for row in tf.nn.softmax(logits).numpy()]
    return logits, np.array(labels)


def fill(measurements, dataset, names):
    """Adds predictions for the clean set and 5 severities of corruptions."""
    sets = [("none", 0)] + [(n, level) for n in names for level in range(1, 6)]
    for seed, (name, severity) in enumerate(sets):
        logits, labels = predictions(seed)
        for calibrator, temperature in (("none", 1), ("ts", 1.5)):
            where = (dataset, name, severity, calibrator)
            scaled = logits / temperature
            ours = {
                metric: function(scaled, labels, from_logits=True)
                for metric, function in (
                    ("accuracy", ct.metrics.accuracy),
                    ("nll", ct.metrics.negative_log_likelihood),
                    ("brier", ct.metrics.brier_score),
                    ("ece", ct.metrics.calibration_error),
                )
            }
            measurements.add(where, scaled, labels, ours)
    return measurements.frame()


def test_metrics_have_its_definitions():
    rows = fill(adapter.Measurements(), "cifar10", ())
    values = rows[rows["calibrator"] == "none"].set_index("metric")["value"]
    assert set(values.index) == {
        *("accuracy", "nll", "brier", "ece", "caltrain_ece")
    }
    logits, labels = predictions(0)
    probs = tf.nn.softmax(logits).numpy()
    confidence = probs.max(axis=1)
    gap = confidence - (probs.argmax(axis=1) == labels)
    bins = np.minimum((confidence * 15).astype(int), 14)
    sums = np.bincount(bins, gap, minlength=15)
    assert values["ece"] == pytest.approx(np.abs(sums).sum() / 300, abs=1e-6)
    ours = ct.metrics.calibration_error(logits, labels, from_logits=True)
    assert values["caltrain_ece"] == ours


def test_logs_have_the_names_of_uncertainty_baselines():
    rows = fill(adapter.Measurements(), "cifar10", ("fog", "snow", "spatter"))
    names = uncertainty_baselines.log_names(rows)
    assert len(names) == 3 * 6
    chosen = rows[rows["corruption"].isin(["fog", "snow"])]
    chosen = chosen.set_index(["metric", "calibrator"]).loc["ece", "none"]
    mean = chosen["value"].mean()
    assert names["test/ece_mean_corrupted"] == pytest.approx(mean)
    mean = chosen[chosen["severity"] == 4]["value"].mean()
    assert names["test/ece_mean_4"] == pytest.approx(mean)


def test_without_the_older_keras_it_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "robustness_metrics.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    with pytest.warns(UserWarning, match="TF_USE_LEGACY_KERAS=1"):
        assert adapter.Measurements().report(is_generated=True) == {}


class Package:
    """Answers as the real one does, with the number of examples as value."""

    metrics = reports = property(lambda self: self)

    def __init__(self):
        self.measured = {}

    def get(self, name, *_):
        assert name in ("accuracy", "nll", "brier", "ece", "cifar10_variants")
        return self

    def add_batch(self, probs, label):
        np.testing.assert_allclose(tf.reduce_sum(probs, axis=1), 1, atol=1e-5)
        self.count = len(label)

    def add_measurement(self, where, name, values):
        self.measured[f"{where}/{name}"] = values[name]

    def result(self):
        return self.measured or {"any": self.count}


def test_another_data_set_has_the_report_of_cifar10(monkeypatch):
    monkeypatch.setattr(adapter, "_import", Package)
    measurements = adapter.Measurements()
    frame = fill(measurements, "cifar100", ("fog", "spatter"))
    assert set(frame["metric"]) == {
        *("accuracy", "nll", "brier", "ece", "caltrain_ece")
    }
    theirs = frame[frame["metric"] != "caltrain_ece"]
    assert (theirs["value"] == 300).all()
    keys = measurements.report(is_generated=False)
    # The extra corruptions have no place in its reports.
    assert len(keys) == 2 * 2 * 5
    assert keys["cifar100/ece"] == 300
    where = "cifar100_c(corruption_type='fog',severity=1)"
    assert 0 < keys[f"{where}/caltrain_ece_ts"] < 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dataset, names, is_generated",
    [
        ("cifar10", NAMES, False),
        ("cifar100", ("fog", "spatter"), False),
        ("imagenet", NAMES, False),
        ("imagenet", NAMES, True),
    ],
)
def test_its_reports_have_our_keys_and_values(dataset, names, is_generated):
    pytest.importorskip("robustness_metrics")
    if os.environ.get("TF_USE_LEGACY_KERAS") != "1":
        pytest.skip("TF_USE_LEGACY_KERAS=1 is not set")
    measurements = adapter.Measurements()
    fill(measurements, dataset, names)
    theirs = measurements.report(is_generated)
    measurements = adapter.Measurements()
    measurements._package = None
    rows = fill(measurements, dataset, names)
    ours = adapter.robustness_report(rows, is_generated)
    assert measurements.report(is_generated) == ours
    # It bounds probabilities below by 1e-7.
    assert theirs == pytest.approx(ours, abs=2e-3)
    mce = dataset == "imagenet" and not is_generated
    assert ("imagenet_c/mce" in theirs) == mce


@pytest.mark.parametrize("shape", [(75, 90), (90, 61), (40, 40)])
def test_other_sizes_are_cropped_as_for_our_evaluation(shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3))
    # Without shared colours, which a decoder of a part takes from that alone.
    encoded = tf.io.encode_jpeg(
        tf.cast(pixels, tf.uint8), chroma_downsampling=False
    )
    expected = imagenet.central_crop(encoded, 32)
    resized = tf.function(
        lambda image: adapter.as_size(image, (32, 32, 3)),
        input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)],
    )
    image = tf.io.decode_jpeg(encoded)
    np.testing.assert_array_equal(resized(image), expected)


def test_images_of_one_size_are_cropped_already():
    image = tf.zeros((64, 64, 3), tf.uint8)
    assert adapter.as_size(image, (64, 64, 3)) is image
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[0] = 255
    resized = adapter.as_size(tf.constant(pixels), (32, 32, 3)).numpy()
    assert resized[0].mean() > 100


def test_create_hands_over_a_run(trained):
    results = json.loads((trained / "results.json").read_text())
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3))
    images = images.astype(np.uint8)
    probs = {}
    for calibrator in ("none", "ts"):
        model, preprocess_fn = adapter.create(str(trained), calibrator)
        features = preprocess_fn({"image": tf.constant(images[0]), "label": 1})
        assert features["label"] == 1
        np.testing.assert_array_equal(features["image"], images[0])
        probs[calibrator] = np.asarray(model({"image": images}))
    scaled = probs["none"] ** (1 / results["temperature_ts"])
    scaled /= scaled.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probs["ts"], scaled, atol=1e-5)
    with pytest.raises(ValueError, match="calibrator='isotonic'"):
        adapter.create(str(trained), "isotonic")
