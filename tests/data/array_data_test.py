import numpy as np
import pytest

import caltrain_tf as ct


def test_every_example_comes_once():
    images = np.arange(5 * 12, dtype=np.uint8).reshape(5, 2, 2, 3)
    data = ct.data.ArrayData(
        "mine",
        {"test": (images, [4, 3, 2, 1, 0])},
        preprocess=lambda images: images,
    )
    batches = list(data.eval_batches("test", 3))
    assert [len(batch[0]) for batch in batches] == [3, 3]
    weights = np.concatenate([batch[2] for batch in batches])
    np.testing.assert_array_equal(weights, [1, 1, 1, 1, 1, 0])
    seen = np.concatenate([batch[0] for batch in batches])[:5]
    np.testing.assert_array_equal(seen, images)
    labels = np.concatenate([batch[1] for batch in batches])[:5]
    np.testing.assert_array_equal(labels, [4, 3, 2, 1, 0])


def test_bad_input_is_an_error():
    images = np.zeros((2, 4, 4, 3), np.uint8)
    for bad in (images.astype(float), images[0]):
        with pytest.raises(ValueError, match="uint8 images.*Received"):
            ct.data.ArrayData("mine", {"test": (bad, [0, 1])})
    with pytest.raises(ValueError, match="class id for each.*2 images"):
        ct.data.ArrayData("mine", {"test": (images, [0])})
    data = ct.data.ArrayData("mine", {"test": (images, [0, 1])})
    with pytest.raises(ValueError, match="`split` must be.*'train'"):
        data.eval_batches("train", 2)
