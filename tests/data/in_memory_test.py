import numpy as np
import pytest

from caltrain_tf.data.in_memory import InMemoryImages


@pytest.mark.parametrize("batch_size", [1, 3, 5, 7, 10])
def test_arrays_are_what_the_dataset_has(batch_size):
    images = np.arange(7 * 12, dtype=np.uint8).reshape(7, 2, 2, 3)
    examples = InMemoryImages(images, np.arange(7), max_shift=0, flip=False)
    dataset = examples.eval_batches(batch_size, rows=range(batch_size))
    arrays = list(examples.array_batches(batch_size))
    assert len(arrays) == -(-7 // batch_size)
    for batch, expected in zip(arrays, dataset, strict=True):
        for part, expected_part in zip(batch, expected, strict=True):
            assert part.dtype == expected_part.dtype
            np.testing.assert_array_equal(part, expected_part)
    places = np.concatenate([places for _, _, places in arrays])
    np.testing.assert_array_equal(places, range(len(arrays) * batch_size))


def test_images_in_memory_cannot_be_changed_by_accident():
    images = np.zeros((4, 2, 2, 3), np.uint8)
    examples = InMemoryImages(images, np.arange(4), max_shift=0, flip=False)
    batch, _, _ = next(examples.array_batches(2))
    with pytest.raises(ValueError, match="read-only"):
        batch += 1
