import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.layers import BatchNormalization

SHAPES = [(8, 5, 5, 3), (1, 4, 4, 2), (3, 1, 1, 2), (2, 32, 32, 16)]


def pair(shape, **options):
    """Our layer and Keras', with the same variables."""
    rng = np.random.default_rng(1)
    options = {"momentum": 0.9, "epsilon": 1e-5, **options}
    made = [
        kind(**options)
        for kind in (BatchNormalization, keras.layers.BatchNormalization)
    ]
    for layer in made:
        layer.build(shape)
    values = [
        rng.uniform(0.5, 2, weight.shape).astype("float32")
        for weight in made[0].weights
    ]
    for layer in made:
        layer.set_weights(values)
    return made


def images(shape, scale=3.0, shift=1.0):
    rng = np.random.default_rng(0)
    return (scale * rng.normal(size=shape) + shift).astype("float32")


def trained_step(layer, x, jit_compile=False):
    """Outputs and gradients of a training step, and the moving statistics."""
    direction = tf.constant(np.random.default_rng(2).normal(size=x.shape))

    @tf.function(jit_compile=jit_compile)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.cast(y, tf.float64) * direction)
        return y, *tape.gradient(loss, [x, *layer.trainable_variables])

    results = step(tf.constant(x))
    return [np.asarray(tf.cast(r, tf.float32)) for r in results] + [
        np.asarray(weight) for weight in layer.non_trainable_variables
    ]


def assert_close(ours, theirs, tolerance=3e-5):
    # Seen 2.4e-6 where sums are taken in another order; a variance of n instead
    # of n - 1 examples would be 5e-4 of the largest case here.
    for one, other in zip(ours, theirs, strict=True):
        scale = np.abs(other).max() + 1
        np.testing.assert_allclose(one / scale, other / scale, atol=tolerance)


@pytest.mark.parametrize(
    "shape, jit_compile",
    [*((shape, False) for shape in SHAPES), (SHAPES[0], True)],
)
def test_a_training_step_is_that_of_keras(shape, jit_compile):
    x = images(shape)
    assert_close(
        *(trained_step(layer, x, jit_compile) for layer in pair(shape))
    )


def test_one_value_a_channel_has_no_variance():
    layer, _ = pair((1, 1, 1, 2))
    y, *_, mean, variance = trained_step(layer, images((1, 1, 1, 2)))
    np.testing.assert_allclose(y[0, 0, 0], layer.beta.numpy())
    before = pair((1, 1, 1, 2))[0].moving_variance.numpy()
    np.testing.assert_allclose(variance, 0.9 * before, rtol=1e-6)
    assert np.isfinite(mean).all()


def test_a_constant_image_becomes_the_offset():
    layer, _ = pair((4, 3, 3, 2))
    y, *others = trained_step(layer, np.full((4, 3, 3, 2), 7, "float32"))
    expected = np.broadcast_to(layer.beta.numpy(), y.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert all(np.isfinite(array).all() for array in others)


def test_inference_is_that_of_keras():
    x = images((6, 4, 4, 3))
    ours, theirs = (layer(x, training=False) for layer in pair(x.shape))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "options",
    [{"center": False}, {"scale": False}, {"trainable": False}, {"axis": 1}],
)
def test_other_cases_are_exactly_keras(options):
    x = images((6, 4, 4, 4))
    ours, theirs = (
        layer(x, training=True) for layer in pair(x.shape, **options)
    )
    np.testing.assert_array_equal(ours, theirs)


def test_vectors_and_masks_are_left_to_keras():
    x = images((6, 4))
    ours, theirs = (layer(x, training=True) for layer in pair(x.shape))
    np.testing.assert_array_equal(ours, theirs)
    x = images((2, 3, 4, 4))
    mask = np.ones((2, 3, 4), bool)
    mask[:, 1:] = False
    ours, theirs = (
        layer(x, training=True, mask=mask) for layer in pair(x.shape)
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_bfloat16_has_statistics_of_float32(policy):
    x = tf.cast(images((8, 6, 6, 3), scale=1, shift=100), tf.bfloat16)
    ours, theirs = (
        trained_step(layer, x) for layer in pair(x.shape, dtype=policy)
    )
    assert pair(x.shape, dtype=policy)[0](x).dtype == tf.bfloat16
    assert_close(ours, theirs, tolerance=4e-3)


def test_the_variance_of_large_values_is_not_lost():
    x = images((16, 8, 8, 2), scale=0.1, shift=50)
    ours, theirs = (trained_step(layer, x) for layer in pair(x.shape))
    # Errors reach 6.2e-4, in the gradient of the scale. A variance from the
    # mean of squares would be wrong by a fifth and more.
    assert_close(ours, theirs, tolerance=6.5e-3)


def test_epsilon_is_that_of_keras():
    # Next to such a small variance it decides.
    x = images((8, 4, 4, 2), scale=1e-4, shift=0)
    outputs = [
        trained_step(layer, x)[0] - layer.beta.numpy()
        for layer in pair(x.shape)
    ]
    # Rounding reaches 1.2e-7; an epsilon of 1.001e-5 moves them by 1.5e-5.
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1.5e-6)


# Old versions of Keras warn of an image that is not in a list.
@pytest.mark.filterwarnings("ignore:The structure of `inputs` doesn't match")
def test_a_saved_model_loads(tmp_path):
    model = ct.models.get("wrn-10-1", num_classes=3, input_shape=(8, 8, 3))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.get_layer("final_bn")) is BatchNormalization
    x = images((2, 8, 8, 3))
    np.testing.assert_array_equal(model(x), loaded(x))
