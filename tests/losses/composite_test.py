import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn import datasets

import caltrain_tf as ct
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


@keras.saving.register_keras_serializable("tests")
def squared_logits(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_pred), axis=-1)


def test_is_primary_plus_beta_times_secondary():
    labels, logits = batch(30, 5)
    loss = ct.CompositeLoss("focal", "sb_ece", beta=0.3, from_logits=True)
    primary = np.mean(ct.losses.focal(labels, logits, from_logits=True))
    secondary = float(ct.losses.sb_ece(labels, logits, from_logits=True))
    # One sum in another order: 1e-7.
    np.testing.assert_allclose(
        loss(labels, logits), primary + 0.3 * secondary, rtol=2e-6
    )
    np.testing.assert_allclose(
        loss.parts(labels, logits), (primary, secondary), rtol=2e-6
    )
    each = loss.call(labels, logits)
    assert each.shape == (30,)
    np.testing.assert_allclose(each, loss(labels, logits), rtol=1e-6)


def test_a_secondary_loss_may_stand_alone():
    labels, logits = batch(30, 5)
    loss = ct.CompositeLoss(None, "mmce", beta=3.0, from_logits=True)
    expected = 3 * ct.losses.mmce(labels, logits, from_logits=True)
    np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-6)
    assert [metric.name for metric in loss.part_metrics()] == ["secondary_loss"]
    again = ct.CompositeLoss.from_config(loss.get_config())
    np.testing.assert_allclose(again(labels, logits), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("primary", "from_logits"),
    [
        ("nll", True),
        ({"name": "nll"}, True),
        (ct.losses.NLL(from_logits=True), True),
        (ct.losses.NLL(from_logits=True).get_config(), True),
        (keras.losses.serialize(ct.losses.NLL(from_logits=True)), True),
        ("sparse_categorical_crossentropy", True),
        ("sparse_categorical_crossentropy", False),
        ("SparseCategoricalCrossentropy", True),
        ("SparseCategoricalCrossentropy", False),
        (keras.losses.SparseCategoricalCrossentropy, True),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), True),
        (keras.losses.sparse_categorical_crossentropy, True),
    ],
)
def test_a_part_may_be_whatever_names_a_loss(primary, from_logits):
    labels, logits = batch(30, 5)
    y_pred = logits if from_logits else tf.nn.softmax(logits)
    reference = ct.CompositeLoss("nll", "mmce", from_logits=from_logits)
    loss = ct.CompositeLoss(primary, "mmce", from_logits=from_logits)
    config = json.loads(json.dumps(keras.losses.serialize(loss)))
    weights = np.linspace(0, 3, 30)
    for loss in (loss, keras.losses.deserialize(config)):  # noqa: B020
        np.testing.assert_allclose(
            loss(labels, y_pred, weights),
            reference(labels, y_pred, weights),
            rtol=1e-5,  # Keras' and our cross-entropy: 3e-7.
        )


def test_a_part_may_be_any_function():
    labels, logits = batch(30, 5)
    loss = ct.CompositeLoss(squared_logits, from_logits=True)
    expected = np.mean(np.square(logits))
    for loss in (loss, ct.CompositeLoss.from_config(loss.get_config())):  # noqa: B020
        np.testing.assert_allclose(loss(labels, logits), expected, rtol=5e-5)
    # One that needs one-hot rows, and one of binary problems.
    one_hot = np.eye(5, dtype="float32")[labels]
    loss = ct.CompositeLoss("kl_divergence", "sb_ece")
    probs = tf.nn.softmax(logits)
    np.testing.assert_allclose(
        loss.parts(one_hot, probs)[0],
        np.mean(ct.losses.nll(labels, probs)),
        rtol=5e-5,
    )
    binary, z = (labels > 1).astype("float32"), logits[:, :1]
    loss = ct.CompositeLoss("binary_crossentropy", "sb_ece", from_logits=True)
    np.testing.assert_allclose(
        loss.parts(binary, z)[0],
        np.mean(ct.losses.nll(binary, z, from_logits=True)),
        rtol=5e-5,
    )


@pytest.mark.parametrize("secondary", [None, "sb_ece"])
def test_rows_of_weight_0_change_nothing(secondary):
    labels, logits = batch(9, 4)
    loss = ct.CompositeLoss("nll", secondary, from_logits=True)
    weights = np.array([2, 1, 0, 1, 0, 1, 3, 1, 0], "float32")
    spoilt = np.where(weights == 0, 99, labels)
    garbage = np.where(weights[:, None] == 0, np.inf, logits)
    value = loss(spoilt, garbage, sample_weight=weights)
    kept = weights > 0
    without = loss(labels[kept], logits[kept], sample_weight=weights[kept])
    # Sums of 6 and of 9 terms: 1e-7.
    np.testing.assert_allclose(value, without, rtol=2e-6)
    assert float(loss(labels, logits, sample_weight=np.zeros(9))) == 0.0


class WithOwnCall(ct.CompositeLoss):
    """What a user may write."""

    def call(self, y_true, y_pred):
        return 2.0 * super().call(y_true, y_pred) + 1.0


def test_a_call_of_a_subclass_counts():
    labels, logits = batch(9, 4)
    weights = np.array([2, 1, 0, 1, 0, 1, 3, 1, 0], "float32")
    options = {"secondary": "sb_ece", "from_logits": True}
    inherited = ct.CompositeLoss("nll", **options)
    loss = WithOwnCall("nll", **options)
    expected = 2 * inherited(labels, logits) + 1
    np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-6)
    for value in (
        loss.weighted_mean(labels, logits, weights),
        loss.terms(labels, logits, weights)[0],
        ct.CompositeLoss(loss, from_logits=True)(labels, logits),
    ):
        # It does not see the weights, which weight its values.
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_the_weighted_mean_does_not_count_padding():
    labels, logits = batch(9, 4)
    weights = np.array([2, 1, 0, 1, 0, 1, 3, 1, 0], "float32")
    kept = weights > 0
    both = np.stack([labels, np.arange(9) % 2], axis=1)
    for loss, y_true in (
        (ct.losses.NLL(from_logits=True), labels),
        (ct.losses.MMCE(from_logits=True), labels),
        (ct.CompositeLoss("nll", "mmce", from_logits=True), labels),
        (ct.losses.Groupwise("nll", 2, from_logits=True), both),
    ):
        value = loss.weighted_mean(y_true, logits, weights)
        expected = loss.weighted_mean(y_true[kept], logits[kept], weights[kept])
        assert value.shape == ()
        np.testing.assert_allclose(value, expected, rtol=2e-6)
    total, *parts = ct.CompositeLoss(
        "nll", "mmce", beta=3.0, from_logits=True
    ).terms(labels, logits, weights)
    np.testing.assert_allclose(total, parts[0] + 3 * parts[1], rtol=1e-6)
    nll = ct.losses.nll(labels, logits, from_logits=True).numpy()
    np.testing.assert_allclose(
        parts[0], np.average(nll, weights=weights), rtol=1e-6
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_evaluate_and_the_parts(jit_compile):
    features, labels = small_data(40)
    targets = labels
    if jit_compile:  # Soft labels, once.
        targets = 0.9 * np.eye(3, dtype="float32")[labels] + 0.1 / 3
    loss = ct.CompositeLoss("focal", "sb_ece", beta=0.3, from_logits=True)
    model = small_model()
    model.compile(
        keras.optimizers.SGD(0.1),
        loss,
        metrics=loss.part_metrics(),
        jit_compile=jit_compile,
    )
    logits = model(features)
    expected = [
        loss.parts(targets[s], logits[s]) for s in (slice(20), slice(20, 40))
    ]
    primary, secondary = np.mean(expected, axis=0)
    before = model.evaluate(
        features, targets, batch_size=20, return_dict=True, verbose=0
    )
    # Compiled sums, in another order: 3e-7.
    for name, value in (
        ("primary_loss", primary),
        ("secondary_loss", secondary),
        ("loss", primary + 0.3 * secondary),
    ):
        np.testing.assert_allclose(before[name], value, rtol=1e-5)
    # 40 examples in batches of 16: the last one is partial, but XLA would
    # compile it separately.
    history = model.fit(
        features,
        targets,
        batch_size=20 if jit_compile else 16,
        epochs=5,
        validation_data=None if jit_compile else (features, targets),
        verbose=0,
    ).history
    assert history["loss"][-1] < before["loss"]
    assert jit_compile or "val_secondary_loss" in history


def test_a_part_metric_computes_its_part_alone(monkeypatch):
    labels, logits = batch(10, 3)
    weights = (np.arange(10) % 2).astype("float32")
    loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    expected = loss.parts(labels, logits, weights)
    for index, metric in enumerate(loss.part_metrics()):
        other = (loss.secondary, loss.primary)[index]
        with monkeypatch.context() as patch:
            patch.setattr(type(other), "of_batch", None)
            metric.update_state(labels, logits, sample_weight=weights)
        np.testing.assert_array_equal(metric.result(), expected[index])
    with pytest.raises(ValueError, match="`part`.*part='third'"):
        ct.losses.PartMetric(loss, "third")


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_mixed_precision(policy):
    features, labels = small_data()
    keras.config.set_dtype_policy(policy)
    layers = [keras.layers.Input((5,)), keras.layers.Dense(3)]
    if policy == "float32":
        # Logits alone are bfloat16: on a CPU that has no bfloat16, TensorFlow
        # aborts in a product of such matrices.
        layers.append(keras.layers.Activation("linear", dtype="bfloat16"))
    try:
        model = keras.Sequential(layers)
        loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
        model.compile("sgd", loss, jit_compile=False)
        history = model.fit(features, labels, epochs=2, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model(features).dtype in ("bfloat16", "float16")
    assert np.isfinite(history.history["loss"]).all()


def test_saves_and_loads_without_custom_objects(tmp_path):
    features, labels = small_data()
    loss = ct.CompositeLoss("focal", "avuc_gs", beta=0.5, from_logits=True)
    model = small_model()
    model.compile("sgd", loss, metrics=loss.part_metrics())
    expected = model.evaluate(features, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert json.loads(json.dumps(loaded.loss.get_config())) == json.loads(
        json.dumps(loss.get_config())
    )
    np.testing.assert_allclose(
        loaded.evaluate(features, labels, verbose=0), expected, rtol=1e-6
    )


def train(strategy, secondary="sb_ece", jit_compile=False):
    """Weights after two epochs of 21 examples in batches of 16 and 5.

    Two replicas get 8 and 8, then 3 and 2.
    """
    features, labels = small_data(21)
    with strategy.scope():
        model = small_model()
        loss = ct.CompositeLoss(
            "nll", secondary, beta=2.0, from_logits=True, cross_replica=True
        )
        model.compile(
            keras.optimizers.SGD(0.5),
            loss,
            metrics=loss.part_metrics(),
            jit_compile=jit_compile,
        )
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(16)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    return model.get_weights(), history.history


def test_two_replicas_train_as_one(two_replicas):
    expected, expected_history = train(tf.distribute.get_strategy())
    weights, history = train(two_replicas)
    for actual, reference in zip(weights, expected, strict=True):
        # Steps of 0.5 amplify rounding: 1e-6 was seen, and 2e-2 between the
        # batches together and apart.
        np.testing.assert_allclose(actual, reference, atol=5e-5)
    for name, values in expected_history.items():
        np.testing.assert_allclose(history[name], values, rtol=5e-5)


def test_xla_with_cross_replica_says_what_to_change(two_replicas):
    with pytest.raises(ValueError, match="jit_compile=False"):
        train(two_replicas, jit_compile=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"primary": "nll", "beta": -1.0}, "`beta`.*beta=-1.0"),
        ({"primary": "nll", "beta": float("nan")}, "`beta`"),
        ({"primary": "nll", "cross_replica": 1}, "`cross_replica`"),
        ({"primary": "nll", "from_logits": []}, "`from_logits`"),
        ({"primary": "nll", "reduction": "average"}, "`reduction`"),
        ({"primary": "focl"}, "`primary` .* Did you mean 'focal'"),
        ({"primary": "nll", "secondary": "SBECE"}, "secondary='SBECE'"),
        ({"primary": 3}, "primary=3"),
        ({"primary": None}, "primary=None, secondary=None"),
        (
            {"primary": ct.losses.NLL(), "from_logits": True},
            "primary.from_logits=False",
        ),
        (
            {"primary": "nll", "secondary": ct.losses.MMCE(multi_label=True)},
            "secondary.multi_label=True",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ct.CompositeLoss(**arguments)


def test_the_default_beta_does_not_wreck_a_small_network():
    x, labels = datasets.load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, labels = x[order], labels[order]
    x = ((x - x[:285].mean(0)) / x[:285].std(0)).astype("float32")

    def train(*parts):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((30,))])
        model.add(keras.layers.Dense(32, "relu"))
        model.add(keras.layers.Dense(2))
        loss = ct.CompositeLoss(*parts, from_logits=True)
        model.compile("adam", loss)
        model.fit(x[:285], labels[:285], epochs=40, verbose=0)
        logits = model.predict(x[285:], verbose=0)
        accuracy = np.mean(logits.argmax(1) == labels[285:])
        error = ct.metrics.calibration_error(
            logits, labels[285:], from_logits=True, debias=True
        )
        return accuracy, error

    accuracy, error = train("focal")
    composite_accuracy, composite_error = train("focal", "sb_ece")
    # With beta=1, most of such runs lose more than 0.01.
    assert composite_accuracy >= accuracy - 0.01
    assert composite_error < error
