"""Against the real package, where it is installed."""

import functools
import json
import shutil
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.data import imagenet
from caltrain_tf.data.shifted import stored_name
from caltrain_tf.experiments import robustness_metrics as adapter
from caltrain_tf.experiments import shift, shift_tables
from tests.data.conftest import store
from tests.experiments.configs import tiny, train

SIZES = {"train": 96, "test": 24}


@pytest.fixture(scope="session")
def rm():
    """The real robustness_metrics, where it is installed."""
    # Its imports warn of old names in NumPy and elsewhere.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return adapter.register()
        except ImportError as error:
            pytest.skip(f"robustness_metrics is not installed: {error}")


def predictions(size=300, num_classes=10):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(size, num_classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = [rng.choice(num_classes, p=row) for row in probs]
    return logits, probs, np.array(labels)


def result(rm, spec, probs, labels):
    metric = rm.metrics.get(spec, None)
    # As its scripts hand them over.
    metric.add_batch(
        probs, label=labels, element_id=np.arange(len(labels))[:, np.newaxis]
    )
    (value,) = metric.result().values()
    return value


@pytest.mark.parametrize("shape", [(75, 90), (90, 61), (40, 40)])
def test_other_sizes_are_cropped_as_for_our_evaluation(shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3))
    # Without shared colours, which a decoder of a part takes from that alone.
    encoded = tf.io.encode_jpeg(
        tf.cast(pixels, tf.uint8), chroma_downsampling=False
    )
    image = tf.io.decode_jpeg(encoded)
    np.testing.assert_array_equal(
        adapter._as_size(image, (32, 32, 3)), imagenet.central_crop(encoded, 32)
    )
    same = tf.zeros((32, 32, 3), tf.uint8)
    assert adapter._as_size(same, (32, 32, 3)) is same


def test_an_absent_package_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "robustness_metrics", None)
    with pytest.raises(ImportError, match="pip install .git.https"):
        adapter.register()


def test_metrics_are_ours(rm):
    logits, probs, labels = predictions()
    for name, function in (
        ("ece", ct.metrics.calibration_error),
        ("nll", ct.metrics.negative_log_likelihood),
        ("ks_error", ct.metrics.ks_error),
    ):
        for temperature in (1.0, 1.7):
            expected = function(logits / temperature, labels, from_logits=True)
            spec = f"caltrain_{name}(temperature={temperature})"
            value = result(rm, spec, probs, labels)
            assert value == pytest.approx(expected, abs=1e-6)
        # Registering again changes nothing.
        assert adapter.register() is rm


def test_bad_temperatures_are_errors(rm):
    with pytest.raises(ValueError, match="temperature=0"):
        rm.metrics.get("caltrain_ece(temperature=0)", None)


def test_ece_is_its_general_calibration_error(rm):
    _, probs, labels = predictions()
    metric = rm.metrics.get(
        "gce(binning_scheme='adaptive',max_prob=True,class_conditional=False,"
        "norm='l2',num_bins=15,threshold=0.0)",
        None,
    )
    metric.add_batch(probs, label=labels)
    (theirs,) = metric.result().values()
    assert result(rm, "caltrain_ece", probs, labels) == pytest.approx(
        theirs, abs=1e-6
    )


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet"])
def test_reports_have_the_keys_of_the_exported_file(rm, dataset):
    temperatures = {"ts": 1.5, "ts_sb_ece": 1.25}
    report = rm.reports.get(f"caltrain_{dataset}(temperatures={temperatures})")
    rows = []
    rng = np.random.default_rng(0)
    for spec in report.required_measurements:
        value = float(rng.random())
        report.add_measurement(
            spec.dataset_name, spec.metric_name, {"any": value}
        )
        calibrator = {1.5: "ts", 1.25: "ts_sb_ece"}.get(
            float(spec.metric_name.partition("=")[2][:-1] or 1), "none"
        )
        clean = spec.dataset_name == dataset
        rows.append(
            {
                "dataset": dataset,
                "corruption": "none" if clean else "fog",
                "severity": 0 if clean else 1,
                "calibrator": calibrator,
                "metric": spec.metric_name.partition("(")[0][9:],
                "value": value,
            }
        )
        # Such a data set is known there, though its files may be missing.
        name = spec.dataset_name.partition("(")[0]
        known = rm.datasets.base.registry.get_registered_subclasses()
        assert name in known
    assert len(rows) == 76 * 3 * 4
    exported = shift_tables.robustness_report(rows, is_generated=True)
    assert report.result() == pytest.approx(exported)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_create_hands_over_a_run(rm, tmp_path):
    train(tiny(), str(tmp_path / "run"))
    run = tmp_path / "run"
    results = json.loads((run / "results.json").read_text())
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3))
    for calibrator in ("none", "ts"):
        model, preprocess_fn = adapter.create(str(run), calibrator)
        features = [
            preprocess_fn({"image": image.astype(np.uint8), "label": 1})
            for image in images
        ]
        assert features[0]["label"] == 1
        batch = np.stack([feature["image"] for feature in features])
        np.testing.assert_array_equal(batch, images)
        probs = np.asarray(model({"image": batch}))
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
        if calibrator == "none":
            plain = probs
    scaled = plain ** (1 / results["temperature_ts"])
    scaled /= scaled.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probs, scaled, atol=1e-5)
    with pytest.raises(ValueError, match="calibrator='isotonic'"):
        adapter.create(str(run), "isotonic")
    shutil.rmtree(run)


@pytest.fixture
def data_dir(tmp_path):
    """Small CIFAR-10 and CIFAR-10-C, as TensorFlow Datasets stores them."""
    import tensorflow_datasets as tfds

    features = {
        "image": tfds.features.Image(shape=(32, 32, 3)),
        "label": tfds.features.ClassLabel(num_classes=10),
    }
    rng = np.random.default_rng(0)
    # Brighter from class to class, of which a network learns a little. Of noise
    # it learns nothing, and the temperature is so high that only float64, as
    # in the adapter, still tells the confidences apart.
    images = {
        split: rng.integers(0, 76, (size, 32, 32, 3), dtype=np.uint8)
        + (np.arange(size) % 10 * 20).astype(np.uint8).reshape(-1, 1, 1, 1)
        for split, size in SIZES.items()
    }

    def examples(images, **more):
        return [
            {"image": image, "label": index % 10}
            | {key: f"{value}_{index}" for key, value in more.items()}
            for index, image in enumerate(images)
        ]

    store(
        tmp_path,
        "cifar10",
        "3.0.2",
        {split: examples(images[split], id=split) for split in SIZES},
        {"id": tfds.features.Text(), **features},
    )
    places = np.arange(SIZES["test"])
    for name in ct.data.corruptions.NAMES:
        for severity in ct.data.corruptions.SEVERITIES:
            corrupt = ct.data.corruptions.get(name, severity)
            spelled = stored_name("cifar10", name)
            store(
                tmp_path,
                "cifar10_corrupted",
                "1.0.0",
                {"test": examples(corrupt(images["test"], places).numpy())},
                features,
                config=f"{spelled}_{severity}",
            )
    return str(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_its_report_of_a_run_is_our_file(rm, data_dir, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds
    from robustness_metrics.bin import compute_report_lib

    config = tiny()
    config.data.name = "cifar10"
    config.data.train_split = "train[:64]"
    run = tmp_path / "run"
    train(config, str(run), data_dir)
    _, _, source = shift.benchmark_run(str(run), data_dir, verbose=False)
    assert source == "TensorFlow Datasets, cifar10_corrupted"
    ours = json.loads((run / "robustness_metrics.json").read_text())

    # It has no flag for the folder.
    builder = functools.partial(tfds.builder, data_dir=data_dir)
    monkeypatch.setattr(tfds, "builder", builder)
    model, preprocess_fn = adapter.create(str(run), data_dir=data_dir)
    results = json.loads((run / "results.json").read_text())
    temperatures = {
        name: results[f"temperature_{name}"] for name in ("ts", "ts_sb_ece")
    }
    name = f"caltrain_cifar10(temperatures={temperatures})"
    _, reports = compute_report_lib.compute_reports(
        tf.distribute.OneDeviceStrategy("CPU:0"),
        [name],
        model,
        preprocess_fn,
        batch_size=32,
    )
    assert len(ours) == 12 + 3 * 12
    assert reports[name] == pytest.approx(ours, abs=1e-4)
