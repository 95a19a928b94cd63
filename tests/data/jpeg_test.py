import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from caltrain_tf.data import jpeg
from tests.data.conftest import jpeg_file


def gradient_file(height, width):
    """A JPEG whose red tells the row and whose green tells the column."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack(
        [rows * 255 / height, columns * 255 / width, 0 * rows], axis=-1
    )
    buffer = io.BytesIO()
    image = Image.fromarray(pixels.round().astype(np.uint8))
    image.save(buffer, "JPEG", quality=100, subsampling=0)
    return buffer.getvalue()


def corners(image):
    """The shares of height and width that an image spans, from its pixels."""
    red, green = image[..., 0] / 255.0, image[..., 1] / 255.0
    return (
        red[0].mean(),
        red[-1].mean(),
        green[:, 0].mean(),
        green[:, -1].mean(),
    )


def test_central_crop_is_seven_eighths_of_the_shorter_side():
    image = jpeg.central_crop(gradient_file(240, 480), 210).numpy()
    assert image.shape == (210, 210, 3) and image.dtype == np.uint8
    top, bottom, left, right = corners(image)
    # JPEG loses up to 0.011; the whole of the shorter side would be 0.06 off.
    assert (top, bottom) == pytest.approx((15 / 240, 225 / 240), abs=0.03)
    assert (left, right) == pytest.approx((135 / 480, 345 / 480), abs=0.03)


def test_random_crops_have_the_standard_areas_and_ratios():
    encoded = gradient_file(200, 200)
    areas, ratios, mirrored = [], [], []
    for number in range(100):
        image = jpeg.random_crop(encoded, 64, [1, number]).numpy()
        assert image.shape == (64, 64, 3)
        top, bottom, left, right = corners(image)
        # The outermost pixels' centres are 63/64 of the crop apart.
        height, width = bottom - top, abs(right - left)
        areas.append(height * width)
        ratios.append(width / height)
        mirrored.append(right < left)
    assert 0.06 < min(areas) < 0.12 and max(areas) > 0.8
    assert min(ratios) > 0.7 and max(ratios) < 1.43
    assert 30 < sum(mirrored) < 70


def test_a_seed_decides():
    encoded = gradient_file(50, 60)
    first, again, other = (
        jpeg.random_crop(encoded, 16, seed).numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_very_long_images_and_small_ones_work():
    for height, width in ((1, 300), (300, 2), (1, 1), (9, 7)):
        encoded = jpeg_file(height, width, (10, 20, 30))
        for image in (
            jpeg.random_crop(encoded, 8, [0, 0]),
            jpeg.central_crop(encoded, 8),
        ):
            assert image.shape == (8, 8, 3)
            assert np.abs(image.numpy() - [10.0, 20.0, 30.0]).max() < 6


def test_grey_files_get_three_channels():
    buffer = io.BytesIO()
    Image.new("L", (20, 20), 77).save(buffer, "JPEG")
    image = jpeg.central_crop(tf.constant(buffer.getvalue()), 10)
    assert image.shape == (10, 10, 3)
    assert (image.numpy() == 77).all()
