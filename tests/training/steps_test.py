"""R replicas with batches of B/R end as one replica with a batch of B."""

import keras
import numpy as np
import pytest

import caltrain_tf as ct
from tests.training import tiny

ALMOST = {"rtol": 2e-5, "atol": 2e-6}


def _fit(strategy, **options):
    trained = tiny.trainer(strategy, **options)
    trained.fit(tiny.dataset(32), epochs=2, verbose=False)
    return trained


@pytest.mark.parametrize("secondary", ["sb_ece", "mmce"])
def test_two_replicas_equal_one(two_replicas, secondary):
    options = {
        "loss": tiny.composite(secondary, beta=2.0),
        "l2": 0.01,
        "clip_norm": 0.5,
    }
    one = _fit(None, **options)
    two = _fit(two_replicas, **options)
    tiny.assert_same_weights(one, two, **ALMOST)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_two_replicas_equal_one_without_communication(
    two_replicas, jit_compile
):
    options = {
        "loss": ct.losses.Focal(from_logits=True),
        "l2": 0.01,
        "jit_compile": jit_compile,
    }
    one = _fit(None, **options)
    two = _fit(two_replicas, **options)
    tiny.assert_same_weights(one, two, **ALMOST)


def test_compiled_or_not_is_the_same():
    compiled = _fit(None, jit_compile=True, l2=0.01)
    plain = _fit(None, jit_compile=False, l2=0.01)
    tiny.assert_same_weights(compiled, plain, **ALMOST)


def test_equals_model_fit():
    # On one replica the last batch may be smaller.
    data = tiny.dataset(40, drop_remainder=False)
    trained = tiny.trainer(loss=tiny.composite(cross_replica=False))
    trained.fit(data, epochs=2, verbose=False)
    model = tiny.network()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, tiny.composite(cross_replica=False))
    model.fit(data, epochs=2, verbose=0, shuffle=False)
    for left, right in zip(tiny.weights(trained), model.weights, strict=True):
        np.testing.assert_allclose(left, right.numpy(), **ALMOST)


def test_synchronized_batch_normalization(two_replicas):
    def make_network():
        layer = keras.layers.BatchNormalization(momentum=0.9, synchronized=True)
        return tiny.network(layer)

    one = _fit(None, make_network=make_network, l2=0.01)
    two = _fit(two_replicas, make_network=make_network, l2=0.01)
    tiny.assert_same_weights(one, two, rtol=1e-4, atol=1e-5)


def test_the_models_own_losses_are_counted_once(two_replicas):
    def make_network():
        model = tiny.network()
        model.layers[0].kernel_regularizer = keras.regularizers.L2(0.05)
        return keras.models.clone_model(model)

    one = _fit(None, make_network=_seeded(make_network))
    two = _fit(two_replicas, make_network=_seeded(make_network))
    plain = _fit(None, make_network=_seeded(tiny.network))
    tiny.assert_same_weights(one, two, **ALMOST)
    assert not np.allclose(tiny.weights(one)[0], tiny.weights(plain)[0])


def _seeded(make_network):
    def make():
        model = make_network()
        generator = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(generator.normal(size=variable.shape))
        return model

    return make


def test_l2_is_the_gradient_of_the_sum_of_squares():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain = tiny.trainer(loss=loss)
    everything = tiny.trainer(loss=loss, l2=0.1)
    kernels = tiny.trainer(loss=loss, l2=0.1, l2_on=("kernel",))
    for trained in (plain, everything, kernels):
        for variable in trained.model.trainable_variables:
            variable.assign(variable + 0.25)
    start = tiny.weights(plain)
    for trained in (plain, everything, kernels):
        trained.fit(tiny.dataset(16), epochs=1, verbose=False)
    rate = 0.1
    for index, before in enumerate(start):
        decay = rate * 2 * 0.1 * before
        expected = tiny.weights(plain)[index] - decay
        np.testing.assert_allclose(
            tiny.weights(everything)[index], expected, atol=1e-6
        )
        if before.ndim == 1:
            expected = tiny.weights(plain)[index]
        np.testing.assert_allclose(
            tiny.weights(kernels)[index], expected, atol=1e-6
        )


def test_clips_the_global_norm():
    trained = tiny.trainer(clip_norm=1e-3)
    before = tiny.weights(trained)
    trained.fit(tiny.dataset(16), epochs=1, verbose=False)
    moved = [
        after - start
        for after, start in zip(tiny.weights(trained), before, strict=True)
    ]
    norm = np.sqrt(sum(np.sum(step**2) for step in moved))
    np.testing.assert_allclose(norm, 0.1 * 1e-3, rtol=1e-3)


@pytest.mark.parametrize("replicas", [1, 2])
def test_mixed_bfloat16(two_replicas, replicas):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        strategy = two_replicas if replicas == 2 else None
        trained = tiny.trainer(strategy)
        history = trained.fit(tiny.dataset(32), epochs=3, verbose=False)
    finally:
        keras.config.set_dtype_policy("float32")
    assert history[-1]["train/loss"] < history[0]["train/loss"]
    assert trained.model.layers[0].compute_dtype == "bfloat16"
    assert trained.predict(tiny.dataset()).dtype == np.float32


def test_mixed_float16_scales_the_loss(two_replicas):
    def scaled(*args, **kwargs):
        inner = keras.optimizers.SGD(*args, **kwargs)
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**9)

    plain = _fit(None, clip_norm=0.5)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        trained = _fit(two_replicas, optimizer=scaled, clip_norm=0.5)
        with pytest.raises(ValueError, match="LossScaleOptimizer"):
            tiny.trainer()
    finally:
        keras.config.set_dtype_policy("float32")
    tiny.assert_same_weights(trained, plain, rtol=0.05, atol=5e-3)
