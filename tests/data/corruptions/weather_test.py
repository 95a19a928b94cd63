import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import caltrain_tf as ct
from caltrain_tf.data.corruptions import weather
from tests.data.corruptions import cases


def test_photographs_are_used_where_there_are_some(tmp_path):
    sizes = ((40, 50), (33, 70))
    for index, (height, width) in enumerate(sizes):
        # At the scale of the strengths for CIFAR, 0.2.
        image = np.full((5 * height, 5 * width, 3), 100 + 50 * index, np.uint8)
        Image.fromarray(image).save(tmp_path / f"frost{index}.png")
    (tmp_path / "notes.txt").write_text("no photograph")
    images = np.zeros((30, 32, 32, 3), np.uint8)
    corrupt = ct.data.corruptions.get("frost", 5, frost_dir=str(tmp_path))
    frosted = corrupt(images, np.arange(30)).numpy()
    assert set(np.unique(frosted)) == {45, 67}
    assert (frosted == frosted[:, :1, :1, :1]).all()


@pytest.fixture
def forget_photographs():
    weather._photographs.cache_clear()
    yield
    weather._photographs.cache_clear()


def test_photographs_of_imagecorruptions_are_used_where_installed(
    tmp_path, monkeypatch, forget_photographs
):
    package = tmp_path / "imagecorruptions"
    (package / "frost").mkdir(parents=True)
    # Never imported: what it needs may be missing.
    (package / "__init__.py").write_text("raise ImportError")
    white = np.full((160, 160, 3), 255, np.uint8)
    Image.fromarray(white).save(package / "frost" / "frost1.png")
    monkeypatch.syspath_prepend(tmp_path)
    assert weather.installed_photographs() == str(package / "frost")
    images = np.zeros((1, 32, 32, 3), np.uint8)
    frosted = ct.data.corruptions.get("frost", 1)(images, [0]).numpy()
    assert (frosted == 51).all()


def test_a_crop_is_a_part_of_a_photograph(tmp_path):
    rng = np.random.RandomState(0)
    photograph = rng.randint(0, 256, (70, 90, 3), dtype=np.uint8)
    Image.fromarray(photograph).save(tmp_path / "frost.png")
    images = np.zeros((4, 65, 65, 3), np.uint8)
    corrupt = ct.data.corruptions.get("frost", 3, frost_dir=str(tmp_path))
    for ice in corrupt(images, np.arange(4)).numpy():
        windows = np.lib.stride_tricks.sliding_window_view(
            np.floor(photograph * 0.7), (65, 65, 3)
        )
        gaps = np.abs(windows[:, :, 0] - ice).max(axis=(2, 3, 4))
        assert gaps.min() == 0


def test_textures_have_the_colours_of_the_photographs():
    for texture, (mean, scale) in zip(
        weather._photographs(None, 1.0), weather._TINTS, strict=True
    ):
        # Clipping to 0 to 255 moves them by 0.5 and 6%, on any machine.
        np.testing.assert_allclose(texture.mean(axis=(0, 1)), mean, atol=2)
        np.testing.assert_allclose(texture.std(axis=(0, 1)), scale, rtol=0.1)


def test_bad_folders_are_errors(tmp_path):
    images = cases.photographs()[:1]
    corrupt = ct.data.corruptions.get("frost", 1, frost_dir=str(tmp_path))
    for function in (corrupt, tf.function(corrupt)):
        with pytest.raises(ValueError, match="`frost_dir` must hold.*Received"):
            function(images, [0])
    Image.new("RGB", (100, 100)).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="at least 32 x 32.*20 pixels"):
        corrupt(images, [0])
