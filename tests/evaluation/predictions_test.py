import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.evaluation.predictions import Inference, weights_digest

LOGITS = np.random.default_rng(0).normal(size=(5, 3))
LABELS = np.array([0, 1, 2, 0, 1], "int32")


def test_round_trip(tmp_path):
    path = tmp_path / "predictions" / "test.npz"
    ct.evaluation.save_predictions(path, LOGITS, LABELS)
    logits, labels = ct.evaluation.load_predictions(path)
    np.testing.assert_array_equal(logits, LOGITS.astype("float32"))
    np.testing.assert_array_equal(labels, LABELS)
    assert logits.dtype == "float32" and labels.dtype == "int64"
    assert [file.name for file in path.parent.iterdir()] == ["test.npz"]


def test_a_half_written_file_is_an_error(tmp_path):
    path = tmp_path / "test.npz"
    ct.evaluation.save_predictions(path, LOGITS, LABELS)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="`path`.*test.npz"):
            ct.evaluation.load_predictions(path)


def test_other_files_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        ct.evaluation.load_predictions(tmp_path / "missing.npz")
    np.savez(tmp_path / "other.npz", probs=LOGITS)
    with pytest.raises(ValueError, match="logits"):
        ct.evaluation.load_predictions(tmp_path / "other.npz")
    pickled = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "pickle.npz", logits=pickled, labels=pickled)
    with pytest.raises(ValueError, match="`path`"):
        ct.evaluation.load_predictions(tmp_path / "pickle.npz")


def test_bad_predictions_are_not_written(tmp_path):
    spoilt = LOGITS.copy()
    spoilt[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"`logits`.*3"):
        ct.evaluation.save_predictions(tmp_path / "a.npz", spoilt, LABELS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["local", "ram://predictions"])
def test_half_precision_and_buckets(tmp_path, folder):
    path = folder if "://" in folder else tmp_path / folder
    path = f"{path}/half.npz"
    ct.evaluation.save_predictions(path, LOGITS, LABELS, "float16")
    logits, labels = ct.evaluation.load_predictions(path)
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits, LOGITS.astype("float16"))
    np.testing.assert_array_equal(labels, LABELS)
    with pytest.raises(ValueError, match="within 65504"):
        ct.evaluation.save_predictions(path, 1e5 * LOGITS, LABELS, "float16")


@pytest.fixture
def data():
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), np.uint8)
    return ct.data.ArrayData("mine", {"test": (images, np.arange(10))})


def means(images):
    return tf.reduce_mean(images, axis=[1, 2])


@pytest.mark.parametrize("batches_per_call", [None, 2])
def test_examples_without_weight_are_left_out(data, batches_per_call):
    inference = Inference(means, batches_per_call=batches_per_call)

    def make_batches(batch_size, shard):
        return data.eval_batches("test", batch_size, shard=shard)

    logits, labels = inference.predict(make_batches, 4)
    np.testing.assert_array_equal(labels, range(10))
    images, _, _ = next(iter(data.eval_batches("test", 10)))
    np.testing.assert_allclose(logits, images.numpy().mean((1, 2)), rtol=1e-5)
    first, _ = inference.predict(make_batches, 4, 6)
    np.testing.assert_array_equal(first, logits[:6])


def test_a_network_runs_in_inference_mode():
    images = np.random.default_rng(0).normal(size=(4, 2, 2, 3))
    images = tf.constant(images, tf.bfloat16)
    inputs = keras.Input((2, 2, 3))
    flat = keras.layers.Flatten()(inputs)
    model = keras.Model(inputs, keras.layers.Dropout(0.5)(flat))
    batch = images, tf.range(4), tf.ones(4)
    dataset = tf.data.Dataset.from_tensors(batch)
    logits, _ = Inference(model).predict(lambda *_, **__: dataset, 4)
    assert logits.dtype == np.float32
    expected = tf.reshape(tf.cast(images, tf.float32), (4, 12))
    np.testing.assert_array_equal(logits, expected)


def test_the_replicas_share_a_networks_batches(data, two_replicas):
    with two_replicas.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input([8, 8, 3]),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )
    images, labels, _ = next(iter(data.eval_batches("test", 10)))
    rows = []

    def make_batches(batch_size, shard):
        assert shard == (0, 1)
        rows.append(batch_size)
        return data.eval_batches("test", batch_size)

    inference = Inference(model, two_replicas)
    logits, ids = inference.predict(make_batches, 3)
    # A multiple of the number of replicas.
    assert rows == [4]
    np.testing.assert_array_equal(ids, labels)
    np.testing.assert_allclose(logits, model(images), atol=1e-5)
    assert len(weights_digest(model)) == 32


def test_errors_of_networks_and_pipelines_reach_the_caller(data):
    def network(images):
        return tf.ensure_shape(images, [4, 9, 9, 3])

    def make_batches(batch_size, shard):
        return data.eval_batches("test", batch_size)

    with pytest.raises(ValueError, match="9, 9"):
        Inference(network).predict(make_batches, 4)


def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
    )


def test_the_digest_is_of_the_weights_alone():
    network = model()
    digest = weights_digest(network)
    assert digest == weights_digest(model())
    # Dropout's random numbers move on, metrics count; moving means do count.
    network.compile("sgd", "mse", metrics=["mae"])
    network.evaluate(np.ones((2, 4)), np.ones((2, 3)), verbose=0)
    assert weights_digest(network) == digest
    network(np.ones((2, 4)), training=True)
    assert weights_digest(network) != digest


def test_shapes_count_for_the_digest():
    first, second = tf.Module(), tf.Module()
    first.w, second.w = tf.Variable([[1.0, 2.0]]), tf.Variable([1.0, 2.0])
    assert weights_digest(first) != weights_digest(second)
    assert weights_digest(lambda images: images) is None
