import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.evaluation.inference import compiled
from caltrain_tf.evaluation.inference import outputs
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


def test_a_network_runs_in_inference_mode():
    images = np.random.default_rng(0).normal(size=(4, 2, 2, 3))
    images = tf.constant(images, tf.bfloat16)
    inputs = keras.Input((2, 2, 3))
    flat = keras.layers.Flatten()(inputs)
    model = keras.Model(inputs, keras.layers.Dropout(0.5)(flat))
    logits = compiled(model)(images)
    assert logits.dtype == tf.float32
    expected = tf.reshape(tf.cast(images, tf.float32), (4, 12))
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("at_once", [1, 2])
def test_batches_stay_in_order_though_two_run_at_once(at_once, monkeypatch):
    monkeypatch.setattr(
        "caltrain_tf.evaluation.inference.is_processor_alone",
        lambda: at_once == 2,
    )
    lock, running, most = threading.Lock(), [], []

    def slow_at_first(images):
        with lock:
            running.append(0)
            most.append(len(running))
        time.sleep(0.2 if images[0] == 0 else 0.02)
        with lock:
            running.pop()
        return images * 10

    def infer(images):
        return tf.convert_to_tensor(slow_at_first(images.numpy()))

    numbers = tf.data.Dataset.range(6).batch(1)
    batches = tf.data.Dataset.zip(numbers, numbers)
    results = list(outputs(infer, batches))
    np.testing.assert_array_equal(results, [[[10 * n], [n]] for n in range(6)])
    assert max(most) == at_once


def test_a_networks_error_reaches_the_caller(data):
    def network(images):
        return tf.ensure_shape(images, [4, 9, 9, 3])

    with pytest.raises(ValueError, match="9, 9"):
        predict(compiled(network), data.eval_batches("test", 4))


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
