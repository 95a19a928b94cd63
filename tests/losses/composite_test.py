import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.losses.cases import SECONDARY
from tests.losses.cases import batch


def small_model(num_classes=3, seed=0, activation=None):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.layers.Input((5,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(
                num_classes, activation=activation, dtype="float32"
            ),
        ]
    )


def small_data(num_examples=44, num_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_examples, 5)).astype("float32")
    labels = rng.integers(0, num_classes, num_examples)
    return features, labels


def test_is_primary_plus_beta_times_secondary():
    labels, logits = batch(30, 5)
    loss = ct.CompositeLoss("focal", "sb_ece", beta=0.3, from_logits=True)
    primary = np.mean(ct.losses.focal(labels, logits, from_logits=True))
    secondary = float(ct.losses.sb_ece(labels, logits, from_logits=True))
    np.testing.assert_allclose(
        loss(labels, logits), primary + 0.3 * secondary, rtol=1e-6
    )
    np.testing.assert_allclose(
        loss.parts(labels, logits), (primary, secondary), rtol=1e-6
    )
    each = loss.call(labels, logits)
    assert each.shape == (30,)
    np.testing.assert_allclose(each, loss(labels, logits), rtol=1e-6)


def test_alone_it_is_keras_cross_entropy():
    labels, logits = batch(30, 5)
    loss = ct.CompositeLoss("nll", from_logits=True)
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    np.testing.assert_allclose(
        loss(labels, logits), keras_loss(labels, logits), rtol=1e-6
    )


def test_a_secondary_loss_may_stand_alone():
    labels, logits = batch(30, 5)
    loss = ct.CompositeLoss(None, "mmce", beta=3.0, from_logits=True)
    expected = 3 * ct.losses.mmce(labels, logits, from_logits=True)
    np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-6)
    assert [metric.name for metric in loss.part_metrics()] == ["secondary_loss"]
    again = ct.CompositeLoss.from_config(loss.get_config())
    np.testing.assert_allclose(again(labels, logits), expected, rtol=1e-6)


def test_parts_may_be_names_losses_or_configs():
    labels, logits = batch(30, 5)
    of_names = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    for primary, secondary in [
        (ct.losses.NLL(from_logits=True), ct.losses.SBECE(from_logits=True)),
        ({"name": "nll"}, {"name": "sb_ece"}),
        (
            keras.losses.serialize(ct.losses.NLL(from_logits=True)),
            ct.losses.SBECE(from_logits=True).get_config(),
        ),
        (
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "sb_ece",
        ),
    ]:
        loss = ct.CompositeLoss(primary, secondary, from_logits=True)
        np.testing.assert_allclose(
            loss(labels, logits), of_names(labels, logits), rtol=1e-6
        )


@pytest.mark.parametrize("secondary", [None, *SECONDARY])
def test_rows_of_weight_0_change_nothing(secondary):
    labels, logits = batch(9, 4)
    loss = ct.CompositeLoss("nll", secondary, from_logits=True)
    weights = np.array([2, 1, 0, 1, 0, 1, 3, 1, 0], "float32")
    spoilt = np.where(weights == 0, 99, labels)
    garbage = np.where(weights[:, None] == 0, np.inf, logits)
    value = loss(spoilt, garbage, sample_weight=weights)
    kept = weights > 0
    without = loss(labels[kept], logits[kept], sample_weight=weights[kept])
    np.testing.assert_allclose(value, without, rtol=1e-6)
    assert float(loss(labels, logits, sample_weight=np.zeros(9))) == 0.0


def test_a_keras_mask_leaves_rows_out():
    labels, logits = batch(6, 4)
    mask = np.array([True, True, False, True, False, True])
    masked = tf.constant(logits)
    masked._keras_mask = tf.constant(mask)
    for loss in (
        ct.CompositeLoss("nll", "mmce", from_logits=True),
        ct.losses.MMCE(from_logits=True),
        ct.losses.NLL(from_logits=True),
    ):
        np.testing.assert_allclose(
            loss(labels, masked), loss(labels[mask], logits[mask]), rtol=1e-6
        )


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("labels_are", ["ids", "one_hot", "soft"])
def test_fit_and_evaluate(jit_compile, labels_are):
    features, labels = small_data()
    targets = labels
    if labels_are != "ids":
        targets = np.eye(3, dtype="float32")[labels]
    if labels_are == "soft":
        targets = 0.9 * targets + 0.1 / 3
    loss = ct.CompositeLoss("focal", "sb_ece", from_logits=True)
    model = small_model()
    model.compile("sgd", loss, jit_compile=jit_compile)
    before = model.evaluate(features, targets, batch_size=44, verbose=0)
    np.testing.assert_allclose(
        before, loss(targets, model(features)), rtol=1e-5
    )
    # 44 examples in batches of 16: the last one is partial.
    model.fit(features, targets, batch_size=16, epochs=5, verbose=0)
    after = model.evaluate(features, targets, batch_size=44, verbose=0)
    assert after < before


def test_fit_with_weights_equals_fit_without_the_ignored_rows():
    features, labels = small_data(48)
    weights = (np.arange(48) % 3 != 0).astype("float32")
    results = []
    for rows, sample_weight in [
        (slice(None), weights),
        (weights == 1, weights[weights == 1]),
    ]:
        model = small_model()
        loss = ct.CompositeLoss("nll", "s_avuc", from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss)
        model.fit(
            features[rows],
            labels[rows],
            sample_weight=sample_weight,
            batch_size=48,
            epochs=3,
            shuffle=False,
            verbose=0,
        )
        results.append(model.get_weights())
    for with_zeros, without in zip(*results, strict=True):
        np.testing.assert_allclose(with_zeros, without, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    features, labels = small_data()
    keras.config.set_dtype_policy(policy)
    try:
        model = keras.Sequential(
            [keras.layers.Input((5,)), keras.layers.Dense(3)]
        )
        loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
        model.compile("sgd", loss)
        history = model.fit(features, labels, epochs=2, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model(features).dtype == policy.removeprefix("mixed_")
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("secondary", [None, *ct.losses.SECONDARY])
def test_saves_and_loads_without_custom_objects(secondary, tmp_path):
    features, labels = small_data()
    loss = ct.CompositeLoss("focal", secondary, beta=0.5, from_logits=True)
    model = small_model()
    model.compile("sgd", loss, metrics=loss.part_metrics())
    model.fit(features, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert json.loads(json.dumps(loaded.loss.get_config())) == json.loads(
        json.dumps(loss.get_config())
    )
    np.testing.assert_allclose(
        loaded.evaluate(features, labels, verbose=0),
        model.evaluate(features, labels, verbose=0),
        rtol=1e-5,
    )


def train(strategy, secondary, cross_replica=True, **options):
    """Weights after two epochs of 21 examples in batches of 16 and 5.

    Two replicas get 8 and 8, then 3 and 2.
    """
    features, labels = small_data(21)
    with strategy.scope():
        model = small_model()
        loss = ct.CompositeLoss(
            "nll",
            secondary,
            beta=2.0,
            from_logits=True,
            cross_replica=cross_replica,
        )
        options = {"jit_compile": False, **options}
        model.compile(keras.optimizers.SGD(0.5), loss, **options)
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(16)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    return model.get_weights(), history.history


@pytest.mark.parametrize("secondary", [None, *ct.losses.SECONDARY])
def test_two_replicas_train_as_one(secondary, two_replicas):
    expected, expected_history = train(tf.distribute.get_strategy(), secondary)
    weights, history = train(two_replicas, secondary)
    for actual, reference in zip(weights, expected, strict=True):
        np.testing.assert_allclose(actual, reference, atol=1e-5)
    np.testing.assert_allclose(
        history["loss"], expected_history["loss"], rtol=1e-5
    )


def test_without_cross_replica_the_batches_stay_apart(two_replicas):
    together, _ = train(tf.distribute.get_strategy(), "sb_ece")
    apart, _ = train(two_replicas, "sb_ece", cross_replica=False)
    assert np.abs(together[0] - apart[0]).max() > 1e-4


@pytest.mark.parametrize("secondary", ["sb_ece", "mmce"])
def test_xla_with_cross_replica_says_what_to_change(secondary, two_replicas):
    with pytest.raises(ValueError, match="jit_compile=False"):
        train(two_replicas, secondary, jit_compile=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"primary": "nll", "beta": -1.0}, "`beta`.*beta=-1.0"),
        ({"primary": "nll", "beta": float("nan")}, "`beta`"),
        ({"primary": "focl"}, "Did you mean 'focal'"),
        ({"primary": "nll", "secondary": "sbece"}, "Did you mean 'sb_ece'"),
        ({"primary": 3}, "identifier=3"),
        ({"primary": None}, "primary=None, secondary=None"),
        (
            {"primary": ct.losses.NLL(), "from_logits": True},
            "primary.from_logits=False",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ct.CompositeLoss(**arguments)
