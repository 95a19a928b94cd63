import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.evaluation.inference import compiled
from caltrain_tf.evaluation.inference import predict
from caltrain_tf.evaluation.inference import walk

SHIFTS = [("contrast", 5), ("fog", 1), ("contrast", 1)]


@pytest.fixture
def data():
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), np.uint8)
    return ct.data.ArrayData("mine", {"test": (images, np.arange(10))})


@pytest.fixture
def infer():
    return compiled(lambda images: tf.reduce_mean(images, axis=[1, 2]))


def test_examples_without_weight_are_left_out(data, infer):
    logits, labels = predict(infer, data.eval_batches("test", 4))
    np.testing.assert_array_equal(labels, range(10))
    images, _, _ = next(iter(data.eval_batches("test", 10)))
    expected = images.numpy().mean(axis=(1, 2))
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    first, _ = predict(infer, data.eval_batches("test", 4), 6)
    np.testing.assert_array_equal(first, logits[:6])


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_halves_are_put_together_in_order(size):
    images = np.random.default_rng(0).normal(size=(size, 4, 4, 3))
    images = images.astype("float32")
    model = ct.models.get("wrn-10-1", num_classes=3, input_shape=(4, 4, 3))
    infer = compiled(model)
    logits = infer(tf.constant(images))
    assert logits.dtype == tf.float32
    operations = infer.get_concrete_function(images).graph.get_operations()
    on_cpu = not tf.config.list_logical_devices("GPU")
    is_split = "Split" in {operation.type for operation in operations}
    assert is_split == (on_cpu and size % 2 == 0)
    expected = model(images, training=False)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_one_batch_size_gets_whole_batches():
    inputs = keras.Input(batch_shape=(4, 2, 2, 3))
    model = keras.Model(inputs, keras.layers.Flatten()(inputs))
    images = np.arange(48, dtype="float32").reshape(4, 2, 2, 3)
    logits = compiled(model)(tf.constant(images))
    np.testing.assert_array_equal(logits, images.reshape(4, 12))


def test_a_function_gets_whole_batches():
    sizes = []

    def network(images):
        sizes.append(images.shape[0])
        return images[:, 0, 0]

    compiled(network)(tf.zeros((4, 2, 2, 3)))
    assert sizes == [4]


class OneByOne:
    """Sets of a user's own, without `walk`."""

    def __init__(self, data):
        self.batches = ct.data.GeneratedSets(data).batches


@pytest.mark.parametrize("kind", [ct.data.GeneratedSets, OneByOne])
@pytest.mark.parametrize("count", [10, 7, 3])
def test_a_walk_gives_what_each_set_gives_alone(data, infer, count, kind):
    sets = kind(data)
    walked = list(walk(infer, sets, SHIFTS, 4, count))
    assert [shift for shift, _ in walked] == SHIFTS
    for shift, (logits, labels) in walked:
        alone, _ = predict(infer, sets.batches(*shift, 4), count)
        np.testing.assert_array_equal(logits, alone)
        np.testing.assert_array_equal(labels, range(count))
    assert list(walk(infer, sets, [], 4, count)) == []


def test_an_error_in_a_set_reaches_the_caller(infer):
    def bad(images):
        raise ValueError("no such preprocessing")

    images = np.zeros((4, 8, 8, 3), np.uint8)
    data = ct.data.ArrayData("mine", {"test": (images, range(4))}, bad)
    with pytest.raises(ValueError, match="no such preprocessing"):
        list(walk(infer, ct.data.GeneratedSets(data), SHIFTS, 4, 4))
