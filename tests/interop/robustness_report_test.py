"""Its script's reports against our file, over the same stored data."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.data.shifted import stored_name
from caltrain_tf.experiments import shift
from caltrain_tf.interop import robustness_metrics as adapter
from tests.data.conftest import store
from tests.experiments.configs import tiny, train

SIZES = {"train": 96, "test": 24}


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
    config.data.calibration_split = "train[64:]"
    run = tmp_path / "run"
    train(config, str(run), f"--data_dir={data_dir}")
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
