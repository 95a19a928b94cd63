import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.losses.cases import NAMES, batch, get, value_and_gradient
from tests.losses.composite_test import small_data, small_model

LABELS, LOGITS = batch(30, 4, seed=2)
# Of four groups, the third one is missing.
GROUPS = np.random.default_rng(0).choice([0, 1, 3], 30, p=[0.6, 0.3, 0.1])
BOTH = np.stack([LABELS, GROUPS], axis=1)
WEIGHTS = np.random.default_rng(1).integers(1, 4, 30).astype("float32")


def mean_over_groups(loss, logits, weights):
    """The loss of each group's examples alone, by selecting them."""
    values = []
    for group in np.unique(GROUPS):
        chosen = np.flatnonzero(GROUPS == group)
        values.append(
            loss(LABELS[chosen], tf.gather(logits, chosen), weights[chosen])
        )
    return tf.add_n(values) / len(values)


@pytest.mark.parametrize("name", NAMES)
def test_is_the_mean_of_the_losses_of_the_groups(name):
    loss = get(name, from_logits=True, reduction="mean_with_sample_weight")
    groupwise = ct.losses.Groupwise(loss, 4, from_logits=True)
    value, gradient = value_and_gradient(groupwise, BOTH, LOGITS, WEIGHTS)
    expected, reference = value_and_gradient(
        lambda labels, logits: mean_over_groups(loss, logits, WEIGHTS),
        LABELS,
        LOGITS,
    )
    # Sums of 30 terms and of fewer: 1e-6.
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)
    reference = tf.convert_to_tensor(reference)
    np.testing.assert_allclose(
        gradient, reference, atol=1e-5 * np.abs(reference).max()
    )


def test_group_errors_do_not_cancel():
    # One group is right at 0.6, the other one wrong at 0.6.
    probs = np.tile([[0.6, 0.4]], (10, 1))
    labels = np.array([0] * 6 + [1] * 4)
    both = np.stack([labels, labels], axis=1)
    assert abs(float(ct.losses.dca(labels, probs))) < 1e-6
    np.testing.assert_allclose(
        ct.losses.Groupwise("dca", 2)(both, probs), 0.5, rtol=1e-6
    )


def test_options_that_are_not_given_are_those_of_the_loss():
    inner = ct.losses.SBECE(from_logits=True, ignore_class=-1)
    loss = ct.losses.Groupwise(inner, 4)
    assert loss.from_logits is True and loss.ignore_class == -1
    given = ct.losses.Groupwise(inner, 4, from_logits=True, ignore_class=-1)
    assert loss.get_config() == given.get_config()
    assert float(loss(BOTH, LOGITS)) == float(given(BOTH, LOGITS))
    config = {"name": "mmce", "from_logits": True}
    assert ct.losses.Groupwise(config, 2).from_logits is True
    of_keras = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert ct.losses.Groupwise(of_keras, 2).from_logits is True
    assert ct.losses.Groupwise("mmce", 2).from_logits is False


@pytest.mark.parametrize(
    "primary", ["focal", "sparse_categorical_crossentropy"]
)
def test_the_other_part_of_a_composite_loss_sees_class_ids(primary):
    part = ct.losses.Groupwise("sb_ece", 4, from_logits=True)
    alone = ct.CompositeLoss(primary, from_logits=True)
    for weights in (None, WEIGHTS):
        expected = (alone(LABELS, LOGITS, weights), part(BOTH, LOGITS, weights))
        loss = ct.CompositeLoss(primary, part, beta=0.5, from_logits=True)
        np.testing.assert_allclose(
            loss(BOTH, LOGITS, weights),
            expected[0] + 0.5 * expected[1],
            rtol=2e-6,
        )
        np.testing.assert_allclose(
            loss.parts(BOTH, LOGITS, weights), expected, rtol=2e-6
        )
    swapped = ct.CompositeLoss(part, primary, 1.0, from_logits=True)
    np.testing.assert_allclose(
        swapped(BOTH, LOGITS),
        part(BOTH, LOGITS) + alone(LABELS, LOGITS),
        rtol=2e-6,
    )


def test_a_composite_loss_of_each_group():
    inner = ct.CompositeLoss("focal", "sb_ece", beta=0.3, from_logits=True)
    loss = ct.losses.Groupwise(inner, 4, from_logits=True)
    np.testing.assert_allclose(
        loss(BOTH, LOGITS, WEIGHTS),
        mean_over_groups(inner, LOGITS, WEIGHTS),
        rtol=1e-5,
    )


def test_shapes_and_ignored_labels():
    loss = ct.losses.Groupwise("sb_ece", 4, from_logits=True)
    expected = loss(BOTH, LOGITS)
    pixels = loss.call(BOTH.reshape(5, 6, 2), LOGITS.reshape(5, 6, 4))
    assert pixels.shape == (5, 6)
    np.testing.assert_allclose(pixels, expected, rtol=1e-6)
    binary = np.stack([LABELS % 2, GROUPS], axis=1)
    z = LOGITS[:, :1]
    np.testing.assert_array_equal(
        loss(binary, z), loss(binary, np.concatenate([0 * z, z], axis=1))
    )
    # What does not count may be of any group.
    ignored = BOTH.copy()
    ignored[:7] = -1
    loss = ct.losses.Groupwise("sb_ece", 4, from_logits=True, ignore_class=-1)
    np.testing.assert_allclose(
        loss(ignored, LOGITS),
        ct.losses.Groupwise("sb_ece", 4, True)(BOTH[7:], LOGITS[7:]),
        rtol=2e-6,
    )
    assert float(loss(BOTH, LOGITS, np.zeros(30))) == 0.0
    empty = loss(np.zeros((0, 2)), np.zeros((0, 4), "float32"))
    assert float(empty) == 0.0


def test_groups_without_examples_have_a_gradient_of_0():
    logits = tf.constant(1e4 * np.eye(4)[[0, 1, 2]], "float32")
    y_true = [[0, 4], [0, 4], [3, 1]]
    for name in NAMES:
        loss = ct.losses.Groupwise(get(name, from_logits=True), 5)
        value, gradient = value_and_gradient(loss, y_true, logits)
        assert np.isfinite(value) and np.isfinite(gradient).all(), name


def test_fit_save_and_load(tmp_path):
    features, labels = small_data(40)
    both = np.stack([labels, np.arange(40) % 3], axis=1)
    part = ct.losses.Groupwise("sb_ece", 3, from_logits=True)
    loss = ct.CompositeLoss("focal", part, from_logits=True)
    model = small_model()
    model.compile("sgd", loss, metrics=loss.part_metrics())
    expected = loss(both, model(features))
    history = model.fit(features, both, batch_size=40, verbose=0).history
    np.testing.assert_allclose(history["loss"], [expected], rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.loss(both, model(features)),
        loss(both, model(features)),
        rtol=1e-6,
    )


def test_round_trip():
    loss = ct.losses.Groupwise(
        {"name": "sb_ece", "num_bins": 7}, 3, from_logits=True, name="fair"
    )
    config = json.loads(json.dumps(keras.losses.serialize(loss)))
    again = keras.losses.deserialize(config)
    assert again.get_config() == loss.get_config()
    composite = ct.CompositeLoss("nll", loss, from_logits=True)
    config = json.loads(json.dumps(keras.losses.serialize(composite)))
    again = keras.losses.deserialize(config)
    both = np.stack([LABELS, GROUPS % 3], axis=1)
    assert float(again(both, LOGITS)) == float(composite(both, LOGITS))


def test_two_replicas_have_the_loss_of_one(two_replicas):
    losses = [
        ct.CompositeLoss(
            "nll",
            ct.losses.Groupwise(get(name, from_logits=True), 4, True),
            from_logits=True,
            cross_replica=True,
        )
        for name in ("dca", "mmce")  # One sums, one gathers.
    ]

    @tf.function(autograph=False)
    def step(both, logits):
        return value_and_gradient(
            lambda y, z: tf.add_n([loss(y, z) for loss in losses]), both, logits
        )

    # A group that one replica alone has.
    order = np.argsort(GROUPS)
    both, logits = BOTH[order], LOGITS[order]
    expected, reference = step(tf.constant(both), tf.constant(logits))

    def share(array):
        parts = (array[:18], array[18:])
        return two_replicas.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    values, gradients = map(
        two_replicas.experimental_local_results,
        two_replicas.run(step, args=(share(both), share(logits))),
    )
    np.testing.assert_allclose(sum(values), expected, rtol=1e-5)
    np.testing.assert_allclose(
        np.concatenate(gradients),
        reference,
        atol=3e-5 * np.abs(reference).max(),
    )


def test_an_invalid_group_never_counts_as_one():
    loss = ct.losses.Groupwise("sb_ece", 3, from_logits=True)
    compiled = tf.function(loss, jit_compile=True)
    in_a_graph = tf.function(loss).get_concrete_function(
        tf.TensorSpec([None, 2], "float32"), tf.TensorSpec([None, 4], "float32")
    )
    for invalid in (-1, 3, 0.5):
        both = np.stack([LABELS, np.zeros(30)], axis=1).astype("float32")
        both[4, 1] = invalid
        with pytest.raises(ValueError, match=r"group ids from 0 to 2.*\[4\]"):
            loss(both, LOGITS)
        assert np.isnan(compiled(both, LOGITS))
        with pytest.raises(tf.errors.InvalidArgumentError, match="group ids"):
            in_a_graph(tf.constant(both), tf.constant(LOGITS))


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        ("sb_ece", {"num_groups": 0}, "`num_groups`.*num_groups=0"),
        ("sbece", {}, "Did you mean 'sb_ece'"),
        (ct.losses.SBECE(), {"from_logits": True}, "loss.from_logits=False"),
        (ct.losses.SBECE(multi_label=True), {}, "loss.multi_label=True"),
    ],
)
def test_mistakes_are_named(loss, options, message):
    with pytest.raises(ValueError, match=message):
        ct.losses.Groupwise(loss, **{"num_groups": 2, **options})


@pytest.mark.parametrize(
    ("primary", "options", "message"),
    [
        (ct.losses.Groupwise("nll", 2), {}, "agree on `num_groups`"),
        ("nll", {"multi_label": True}, "agree on `multi_label`"),
        ("nll", {"from_logits": True}, "secondary.from_logits=False"),
    ],
)
def test_mistakes_of_a_composite_loss_are_named(primary, options, message):
    part = ct.losses.Groupwise("mmce", 3)
    with pytest.raises(ValueError, match=message):
        ct.CompositeLoss(primary, part, **options)


def test_wrong_labels_and_losses_are_named():
    with pytest.raises(ValueError, match=r"\(batch, 2\).*y_true.shape=\(30,\)"):
        ct.losses.Groupwise("nll", 2)(LABELS, LOGITS)
    loss = ct.losses.Groupwise(lambda y, p: 1.0, 2, True)
    with pytest.raises(ValueError, match="a value for each example"):
        loss(np.zeros((30, 2)), LOGITS)
