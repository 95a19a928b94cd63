"""What `baselines/cifar/README.md` shows under "Your own data"."""

import keras
import numpy as np
import pytest
from PIL import Image

from caltrain_tf.experiments import shift
from tests.data.conftest import store
from tests.experiments.configs import tiny, train

# So short a training determines no temperature.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)


def config_of(name):
    config = tiny()
    config.data.name = name
    config.data.train_split = None
    config.data.image_size = 16
    config.batch_size = 16
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    return config


def test_a_run_on_a_folder_of_images(tmp_path, images):
    name = f"folder:{tmp_path / 'photos'}"
    for index, image in enumerate(images):
        path = tmp_path / "photos" / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    results = train(config_of(name), str(tmp_path / "run"))
    assert 0 <= results["accuracy"] <= 1
    _, data, model = shift.load_run(tmp_path / "run")
    rows = shift.evaluate(model, data, corruptions=["contrast"], severities=[1])
    rows = rows[rows["calibrator"] == "none"]
    values = rows.set_index(["corruption", "metric"])["value"]
    assert values["none", "accuracy"] == pytest.approx(results["accuracy"])
    assert ("contrast", "ece") in values


def test_a_run_on_any_images_of_tensorflow_datasets(tmp_path, images):
    import tensorflow_datasets as tfds

    examples = [
        {"image": image, "label": index % 3}
        for index, image in enumerate(images)
    ]
    features = {
        "image": tfds.features.Image(shape=(16, 16, 3)),
        "label": tfds.features.ClassLabel(num_classes=3),
    }
    store(tmp_path, "shapes", "1.0.0", {"train": examples}, features)
    results = train(
        config_of("shapes"), str(tmp_path / "run"), f"--data_dir={tmp_path}"
    )
    assert 0 <= results["accuracy"] <= 1
    network = keras.saving.load_model(tmp_path / "run" / "model.keras")
    assert network.output_shape == (None, 3)


def test_arrays_and_a_network_of_keras_applications(tmp_path):
    # The smallest images that it takes.
    images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3))
    name = str(tmp_path / "images.npz")
    np.savez(name, images=images.astype(np.uint8), labels=np.arange(40) % 3)
    config = config_of(name)
    config.model = "MobileNet"
    config.data.image_size = 32
    config.epochs = 0
    results = train(config, str(tmp_path / "run"))
    assert 0 <= results["accuracy"] <= 1
    network, calibrated = (
        keras.saving.load_model(tmp_path / "run" / f"{kind}.keras")
        for kind in ("model", "calibrated")
    )
    logits = np.asarray(network(images))
    # Float32 rounding of a division; the temperatures differ from 1 by more.
    np.testing.assert_allclose(
        calibrated(images),
        logits / results["temperature_ts_sb_ece"],
        rtol=1e-5,
        atol=1e-6,
    )
