"""What `baselines/cifar/README.md` shows under "Your own data"."""

import numpy as np
import pytest
from PIL import Image

from caltrain_tf.experiments import build
from caltrain_tf.experiments import shift
from caltrain_tf.experiments import train
from tests.data.conftest import store
from tests.experiments.configs import tiny

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


@pytest.mark.parametrize("kind", ["folder", "npz"])
def test_a_run_on_your_own_images(tmp_path, images, kind):
    if kind == "npz":
        name = str(tmp_path / "images.npz")
        np.savez(name, images=images, labels=np.arange(60) % 3)
    else:
        name = f"folder:{tmp_path / 'photos'}"
        for index, image in enumerate(images):
            path = tmp_path / "photos" / f"class{index % 3}" / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    results = train(config_of(name), str(tmp_path / "run"))
    assert 0 <= results["accuracy"] <= 1
    _, rows, _ = shift.benchmark_run(
        tmp_path / "run",
        corruptions=["contrast"],
        severities=[1],
        keep_predictions="no",
        verbose=False,
    )
    values = {
        (row["corruption"], row["metric"]): row["value"]
        for row in rows
        if row["calibrator"] == "none"
    }
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
    build.check([config_of("shapes")], str(tmp_path))
