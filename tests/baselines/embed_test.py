"""From images to embeddings, to a head on them, to its shift benchmark."""

import json

import keras
import numpy as np
import pandas as pd
import pytest

import caltrain_tf as ct
from tests.baselines import scripts


def run(script, *arguments):
    done = scripts.run_here(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The embeddings of the digits by a small network."""
    folder = tmp_path_factory.mktemp("embeddings")
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.AveragePooling2D(4),
            keras.layers.Flatten(),
        ]
    )
    model.save(folder / "network.keras")
    options = [
        f"--model={folder}/network.keras",
        "--data=digits",
        f"--output_dir={folder}/digits",
        "--corruptions=fog,contrast",
        "--severities=3",
        "--num_examples=100",
    ]
    clean = [*options[:3], "--corruptions=none"]
    done = scripts.run_here("embed.py", "--model=none.keras", *clean[1:])
    assert done.returncode == 1 and "none.keras" in done.stderr
    small = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    small.save(folder / "small.keras")
    done = scripts.run_here(
        "embed.py", f"--model={folder}/small.keras", *clean[1:]
    )
    assert "must have input_shape=(32, 32, 3)" in done.stderr
    # A folder that nothing was written to is free.
    out = run("embed.py", *clean)
    assert "3 sets" in out and "3 of them new" in out
    # As if stopped before the first corrupted set, with other flags.
    about = folder / "digits" / "embeddings.json"
    settings = json.loads(about.read_text())
    settings["corrupted"] = {"num_examples": 7}
    about.write_text(json.dumps(settings))
    out = run("embed.py", *options)
    assert "5 sets" in out and "2 of them new" in out
    out = run("embed.py", *options, "--severities=2,3")
    assert "7 sets" in out and "2 of them new" in out
    return folder


def test_embeddings_are_outputs_of_the_model(folder):
    model = keras.saving.load_model(folder / "network.keras")
    images, labels, _ = next(
        iter(ct.data.get("digits", dtype="uint8").eval_batches("test", 600))
    )
    with np.load(folder / "digits" / "test.npz") as stored:
        np.testing.assert_array_equal(stored["y"], labels)
        np.testing.assert_allclose(
            stored["x"], model.predict(images, verbose=0), rtol=1e-5, atol=1e-6
        )


def test_a_head_on_embeddings_and_its_shift(folder):
    run(
        "cifar/train.py",
        f"--config={scripts.ROOT}/configs/embeddings.py",
        f"--config.data.name=npz:{folder}/digits",
        "--config.model=mlp-16",
        "--config.batch_size=64",
        "--config.epochs=3",
        "--config.optimizer.reference_batch_size=64",
        "--primary=focal",
        "--secondary=sb_ece",
        f"--output_dir={folder}/run",
    )
    results = json.loads((folder / "run" / "results.json").read_text())
    assert results["accuracy"] > 0.8
    run(
        "shift_benchmark.py",
        f"--run_dir={folder}/run",
        "--corruptions=fog,contrast",
        "--severities=3",
    )
    rows = pd.read_csv(folder / "run" / "shift.csv")
    about = json.loads((folder / "run/predictions/shift.json").read_text())
    assert about["num_examples"] == 100  # The clean set is of the same images.
    assert set(rows["corruption"]) == {"none", "fog", "contrast"}


def test_a_set_that_was_not_embedded_is_named(folder):
    data = ct.data.get(f"npz:{folder}/digits")
    assert data.num_examples == {"train": 800, "calibration": 397, "test": 600}
    with pytest.raises(FileNotFoundError, match="the embeddings fog_5.npz"):
        ct.data.shifted_sets(data, names=["fog"], severities=[5])


def test_a_folder_holds_embeddings_of_one_kind(folder):
    where = ["--data=digits", f"--output_dir={folder}/digits"]
    done = scripts.run_here("embed.py", "--model=EfficientNetV2B0", *where)
    assert done.returncode == 1
    assert "clean embeddings" in done.stderr and "model=" in done.stderr
    model = f"--model={folder}/network.keras"
    done = scripts.run_here("embed.py", model, *where, "--num_examples=9")
    assert done.returncode == 1
    assert "num_examples=100 there, 9 here" in done.stderr


def test_images_of_a_folder(folder):
    images = np.random.default_rng(0).integers(0, 256, (12, 40, 30, 3))
    for index, image in enumerate(images.astype("uint8")):
        path = folder / "photos" / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        keras.utils.save_img(path, image)
    run(
        "embed.py",
        f"--model={folder}/network.keras",
        f"--data=folder:{folder}/photos",
        f"--output_dir={folder}/embedded",
        "--corruptions=none",
        "--image_size=32",
    )
    data = ct.data.get(f"npz:{folder}/embedded")
    assert data.image_shape == (192,) and sum(data.num_examples.values()) == 12
