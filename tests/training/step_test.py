"""R replicas with batches of B/R end as one replica with a batch of B."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.training.step import compiled_part
from tests.training import tiny

# Rounding moves weights by up to 2e-7. A loss or a norm of each replica's own
# part, or a gradient that is counted twice, moves them by 1e-3 and more.
ALMOST = {"rtol": 2e-5, "atol": 2e-6}
# A loss of the global batch, and all that is added to it.
OPTIONS = {"l2": 0.01, "clip_norm": 0.5, "jit_compile": True}


def _fit(strategy=None, **options):
    trained = tiny.trainer(strategy, **options)
    trained.fit(tiny.dataset(), epochs=1, verbose=False)
    return trained


@pytest.fixture(scope="module")
def one():
    """One replica, compiled: what others have to end as."""
    return _fit(**OPTIONS)


def test_two_replicas_equal_one(one, two_replicas):
    tiny.assert_same_weights(one, _fit(two_replicas, **OPTIONS), **ALMOST)


def test_compiled_or_not_is_the_same(one):
    plain = _fit(**{**OPTIONS, "jit_compile": False})
    tiny.assert_same_weights(one, plain, **ALMOST)


def test_two_replicas_equal_one_without_communication(two_replicas):
    options = {
        "loss": ct.losses.Focal(from_logits=True),
        "l2": 0.01,
        # The model's own losses are counted once, too.
        "make_network": lambda: _regularized(0.05, ("kernel",)),
        "jit_compile": True,
    }
    one, two = _fit(**options), _fit(two_replicas, **options)
    assert len(two.model.losses) == 2
    tiny.assert_same_weights(one, two, **ALMOST)


def _regularized(factor, names):
    """The network, with a penalty on its weights of these names."""
    model = tiny.network()
    for layer in model.layers:
        for name in names if layer.weights else ():
            penalty = keras.regularizers.L2(factor)
            setattr(layer, f"{name}_regularizer", penalty)
    # Only layers that are made with regularizers have them.
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


def test_equals_model_fit():
    # On one replica the last batch may be smaller.
    data = tiny.dataset(40, drop_remainder=False)
    loss = tiny.composite(cross_replica=False)
    trained = tiny.trainer(loss=loss, l2=0.01)
    trained.fit(data, epochs=2, verbose=False)
    model = _regularized(0.01, ("kernel", "bias"))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, tiny.composite(cross_replica=False))
    model.fit(data, epochs=2, verbose=0, shuffle=False)
    for left, right in zip(tiny.weights(trained), model.weights, strict=True):
        np.testing.assert_allclose(left, right.numpy(), **ALMOST)


def test_synchronized_batch_normalization(two_replicas):
    def make_network():
        layer = keras.layers.BatchNormalization(momentum=0.9, synchronized=True)
        return tiny.network(layer)

    options = {"make_network": make_network, "l2": 0.01}
    one, two = _fit(**options), _fit(two_replicas, **options)
    tiny.assert_same_weights(one, two, rtol=1e-4, atol=1e-5)


def test_l2_takes_the_named_variables():
    class Nothing(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return 0 * y_pred[:, 0]

    trained = tiny.trainer(loss=Nothing(), l2=0.1, l2_on=("kernel",))
    for variable in trained.model.trainable_variables:
        variable.assign(variable + 0.25)
    start = tiny.weights(trained)
    trained.fit(tiny.dataset(16), epochs=1, verbose=False)
    for before, after in zip(start, tiny.weights(trained), strict=True):
        decay = 0.1 * 2 * 0.1 * before if before.ndim == 2 else 0
        np.testing.assert_allclose(after, before - decay, atol=1e-6)


@pytest.fixture
def policy():
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy("float32")


def test_mixed_bfloat16(policy):
    policy("mixed_bfloat16")
    # A larger norm is clipped to this one.
    trained = tiny.trainer(clip_norm=1e-3)
    before = tiny.weights(trained)
    trained.fit(tiny.dataset(16), epochs=1, verbose=False)
    moved = [
        after - start
        for after, start in zip(tiny.weights(trained), before, strict=True)
    ]
    norm = np.sqrt(sum(np.sum(step**2) for step in moved))
    np.testing.assert_allclose(norm, 0.1 * 1e-3, rtol=1e-3)
    assert trained.model.layers[0].compute_dtype == "bfloat16"
    assert trained.predict(tiny.dataset()).dtype == np.float32


def test_mixed_float16_scales_the_loss(one, two_replicas, policy):
    def scaled(*args, **kwargs):
        inner = keras.optimizers.SGD(*args, **kwargs)
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**9)

    policy("mixed_float16")
    options = {**OPTIONS, "jit_compile": False}
    trained = _fit(two_replicas, optimizer=scaled, **options)
    with pytest.raises(ValueError, match="LossScaleOptimizer"):
        tiny.trainer().fit(tiny.dataset(), 1)
    assert trained.predict(tiny.dataset()).dtype == np.float32
    tiny.assert_same_weights(trained, one, rtol=0.05, atol=5e-3)


def test_accumulated_gradients_are_those_of_a_larger_batch(
    two_replicas, tmp_path
):
    def accumulating(*args, **kwargs):
        return keras.optimizers.SGD(
            *args, gradient_accumulation_steps=2, **kwargs
        )

    options = {
        "loss": ct.losses.NLL(from_logits=True),
        "l2": 0.01,
        "jit_compile": True,
    }
    whole = tiny.trainer(**options)
    whole.fit(tiny.dataset(32, 16), epochs=1, verbose=False)
    # Half a batch at a time. The epoch is of 1 step, and a run stops and
    # resumes after it, in the middle of an update.
    x, y = tiny.arrays(32)

    def half_batch(epoch):
        rows = slice(8 * epoch, 8 * epoch + 8)
        data = tf.data.Dataset.from_tensor_slices((x[rows], y[rows]))
        return data.batch(8, drop_remainder=True)

    for epochs in (3, 4):
        halves = tiny.trainer(optimizer=accumulating, **options)
        halves.fit(half_batch, epochs, run=tmp_path, verbose=False)
    tiny.assert_same_weights(whole, halves, **ALMOST)
    with pytest.raises(ValueError, match="several replicas.*replicas=2"):
        tiny.trainer(two_replicas, optimizer=accumulating, **options)


def test_moving_statistics_are_the_mean_over_replicas(two_replicas):
    def make_network():
        return tiny.network(keras.layers.BatchNormalization(momentum=0.0))

    trained = tiny.trainer(two_replicas, make_network, jit_compile=True)
    before = tiny.weights(trained)
    x, _ = tiny.arrays(16)
    hidden = x @ before[0] + before[1]
    trained.fit(tiny.dataset(16), epochs=1, verbose=False)
    layer = trained.model.layers[1]
    copies = two_replicas.experimental_local_results(layer.moving_mean.value)
    for copy in copies:
        np.testing.assert_allclose(copy, hidden.mean(axis=0), atol=1e-6)
    variance = (hidden[:8].var(axis=0) + hidden[8:].var(axis=0)) / 2
    np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-5)


def test_replicas_drop_out_differently(two_replicas):
    rows = []

    class Record(keras.metrics.Metric):
        def __init__(self, name="record", **kwargs):
            super().__init__(name=name, **kwargs)
            self.sums = self.add_variable((2,), "zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            replica = tf.distribute.get_replica_context()
            row = tf.one_hot(replica.replica_id_in_sync_group, 2)
            self.sums.assign_add(row * tf.reduce_sum(tf.abs(y_pred)))

        def result(self):
            rows.append(self.sums.numpy())
            return 0.0

    def make_network():
        return tiny.network(dropout=0.5)

    same = tf.data.Dataset.from_tensor_slices(
        (tf.ones([16, tiny.FEATURES]), tf.zeros([16], tf.int64))
    ).batch(16, drop_remainder=True)
    trained = tiny.trainer(two_replicas, make_network, metrics=[Record()])
    trained.fit(same, epochs=1, verbose=False)
    assert rows[0][0] != rows[0][1]
    state = trained.model.layers[2].seed_generator.state
    copies = two_replicas.experimental_local_results(state.value)
    assert [copy.numpy().tolist() for copy in copies] == [[5, 1], [5, 1]]


def test_what_is_compiled(two_replicas):
    talks, silent = tiny.composite(), tiny.composite(cross_replica=False)
    plain = tiny.network()
    layer = keras.layers.BatchNormalization(synchronized=True)
    synchronized = tiny.network(layer)
    assert compiled_part(plain, talks, True) == "step"
    assert compiled_part(plain, talks, False) is None
    with two_replicas.scope():
        assert compiled_part(plain, talks, True) == "forward"
        assert compiled_part(plain, silent, True) == "gradients"
        assert compiled_part(synchronized, silent, True) is None


def test_terms_of_a_composite_loss():
    loss = tiny.composite(beta=0.5)
    trained = tiny.trainer(loss=loss, l2=0.1, l2_on=("kernel",))
    x, y = tiny.arrays(6)
    weight = np.array([1, 2, 0.5, 1, 0, 0], "float32")
    logits = trained.model(x)
    kernels = [trained.model.weights[0], trained.model.weights[2]]
    l2 = 0.1 * sum(float(tf.reduce_sum(kernel**2)) for kernel in kernels)
    primary, secondary = loss.parts(y, logits, weight)
    step = trained._step
    terms = step.train(x, y, weight).numpy()
    assert dict(zip(step.names, terms, strict=True)) == pytest.approx(
        {
            "loss": float(loss(y, logits, weight)) + l2,
            "primary_loss": float(primary),
            "secondary_loss": float(secondary),
            "l2_loss": l2,
        },
        rel=1e-5,
    )


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ct.losses.NLL(from_logits=True),
        ct.losses.SBECE(from_logits=True),
        tiny.composite("mmce"),
    ],
)
def test_evaluation_is_a_weighted_mean_without_padding(loss):
    step = tiny.trainer(loss=loss)._step
    x, y = tiny.arrays(6)
    weight = np.array([1, 2, 0.5, 1, 0, 0], "float32")
    padded = step.evaluate(x, y, weight)
    whole = step.evaluate(x[:4], y[:4], weight[:4])
    assert len(whole) == len(step.eval_names) + 1
    np.testing.assert_allclose(padded, whole, rtol=1e-5)


def test_padding_counts_in_no_group():
    loss = ct.losses.Groupwise(ct.losses.SBECE(from_logits=True), 2)
    step = tiny.trainer(loss=loss)._step
    x, y = tiny.arrays(64)
    groups = np.arange(64) // 2 % 2
    y = np.stack([y, groups], axis=1)
    weight = (np.arange(64) < 40).astype("float32")
    padded = step.evaluate(x, y, weight)
    whole = step.evaluate(x[:40], y[:40], weight[:40])
    np.testing.assert_allclose(padded, whole, rtol=1e-5)
    value = loss(y[:40], step.predict(x[:40]))
    np.testing.assert_allclose(padded[0] / 40, value, rtol=1e-5)


def test_a_subclass_of_the_composite_loss_with_its_own_call():
    class Doubled(ct.CompositeLoss):
        def call(self, y_true, y_pred):
            return 2 * super().call(y_true, y_pred)

    x, y = tiny.arrays(16)
    plain = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    doubled = Doubled("nll", "sb_ece", from_logits=True)
    terms = [
        tiny.trainer(loss=loss)._step.train(x, y).numpy()
        for loss in (plain, doubled)
    ]
    np.testing.assert_allclose(terms[1], terms[0] * [2, 1, 1], rtol=1e-5)
