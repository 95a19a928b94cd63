import numpy as np
import pytest

from caltrain_tf.data.augment import shift_and_flip


def one_by_one(images, shifts, flips, max_shift):
    margin = (max_shift, max_shift)
    results = []
    for image, (down, right), flip in zip(images, shifts, flips, strict=True):
        height, width, _ = image.shape
        padded = np.pad(image, (margin, margin, (0, 0)))
        top, left = max_shift + down, max_shift + right
        crop = padded[top : top + height, left : left + width]
        results.append(crop[:, ::-1] if flip else crop)
    return np.stack(results)


@pytest.mark.parametrize("shape", [(32, 32, 3), (5, 8, 1)])
@pytest.mark.parametrize("max_shift", [0, 1, 4])
def test_it_equals_pad_crop_and_mirror_of_each_image(shape, max_shift):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50, *shape), dtype=np.uint8)
    shifts = rng.integers(-max_shift, max_shift + 1, (50, 2)).astype("int32")
    flips = rng.integers(0, 2, 50).astype("int32")
    result = shift_and_flip(images, shifts, flips, max_shift)
    assert result.shape == images.shape
    np.testing.assert_array_equal(
        result, one_by_one(images, shifts, flips, max_shift)
    )
