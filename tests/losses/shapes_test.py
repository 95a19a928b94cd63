"""Every shape of output equals the two-dimensional case exactly."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.losses.cases import NAMES, OF_LOGITS, batch, get

LABELS, LOGITS = batch(24, 4, seed=1)
WEIGHTS = np.random.default_rng(0).integers(0, 3, 24).astype("float32")
BINARY = (LABELS % 2).astype("int64")
KINDS = {
    name: (lambda name=name, **options: get(name, **options)) for name in NAMES
}
KINDS["composite"] = lambda **options: ct.CompositeLoss(
    "focal", "sb_ece", **options
)


def check_equal(make, shaped, flat, weights=(None, None), **options):
    """Compares values and gradients of two ways to say the same.

    Args:
        make: The loss as a function of its options.
        shaped: `(labels, predictions)` in a shape of its own.
        flat: The same in two dimensions.
        weights: The weights of both.
        **options: Options of the first loss alone.
    """
    from_logits = options.pop("from_logits", True)
    results = []
    for (labels, y_pred), weight, more in (
        (shaped, weights[0], options),
        (flat, weights[1], {}),
    ):
        loss = make(from_logits=from_logits, **more)
        y_pred = tf.constant(y_pred)
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            value = loss(labels, y_pred, weight)
        results.append((value, tape.gradient(value, y_pred), loss, labels))
    (value, gradient, loss, labels), (expected, flat_gradient, other, ids) = (
        results
    )
    np.testing.assert_array_equal(value, expected)
    if np.size(gradient) == np.size(flat_gradient):
        np.testing.assert_array_equal(
            np.reshape(gradient, flat_gradient.shape), flat_gradient
        )
    else:  # Binary: one logit or probability where the flat case has two.
        difference = flat_gradient[:, 1]
        if not from_logits:
            difference = difference - flat_gradient[:, 0]
        np.testing.assert_allclose(
            np.ravel(gradient), difference, rtol=1e-5, atol=1e-7
        )
    each = loss.call(labels, shaped[1])
    np.testing.assert_array_equal(np.ravel(each), other.call(ids, flat[1]))
    return each


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_and_tokens(kind):
    flat = (LABELS, LOGITS)
    for shape in ((2, 3, 4), (24, 1)):
        labels = LABELS.reshape(shape)
        logits = LOGITS.reshape(*shape, 4)
        weights = (WEIGHTS.reshape(shape), WEIGHTS)
        each = check_equal(KINDS[kind], (labels, logits), flat, weights)
        assert each.shape == shape
    check_equal(KINDS[kind], (labels[..., None], logits), flat)
    # Rows of labels, and Keras' weights of whole images.
    images = (np.eye(4)[LABELS].reshape(2, 12, 4), LOGITS.reshape(2, 12, 4))
    rows = (np.eye(4)[LABELS], LOGITS)
    check_equal(
        KINDS[kind], images, rows, ([1.0, 3.0], np.repeat([1.0, 3.0], 12))
    )


@pytest.mark.parametrize(
    ("kind", "from_logits"),
    [
        *((kind, True) for kind in KINDS),
        *((kind, False) for kind in KINDS if kind not in OF_LOGITS),
    ],
)
def test_binary(kind, from_logits):
    z = LOGITS[:, :1]
    two = np.concatenate([np.zeros_like(z), z], axis=1)
    if not from_logits:
        z = np.array(keras.ops.sigmoid(z))
        two = np.concatenate([1 - z, z], axis=1)
    for labels, y_pred in (
        (BINARY, z),
        (BINARY.reshape(2, 12, 1), z.reshape(2, 12, 1)),
    ):
        check_equal(
            KINDS[kind],
            (labels, y_pred),
            (BINARY, two),
            from_logits=from_logits,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_multi_label(kind):
    labels, logits = BINARY.reshape(6, 4), LOGITS[:, :1].reshape(6, 4)
    flat = (BINARY, LOGITS[:, :1])
    for weights, of_each in (
        (np.arange(6.0), np.repeat(np.arange(6.0), 4)),
        (WEIGHTS.reshape(6, 4), WEIGHTS),
    ):
        each = check_equal(
            KINDS[kind],
            (labels, logits),
            flat,
            (weights, of_each),
            multi_label=True,
        )
        assert each.shape == (6, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_labels_and_masks_leave_examples_out(kind):
    kept = np.arange(24) % 3 != 0
    flat = KINDS[kind](from_logits=True)
    expected = flat(LABELS[kept], LOGITS[kept])
    logits = LOGITS.reshape(2, 12, 4)
    # As many terms or fewer in a sum: 1e-7.
    tolerance = {"rtol": 2e-6}
    loss = KINDS[kind](from_logits=True, ignore_class=255)
    labels = np.where(kept, LABELS, 255).reshape(2, 12)
    np.testing.assert_allclose(loss(labels, logits), expected, **tolerance)
    masked = tf.constant(np.where(kept.reshape(2, 12, 1), logits, np.nan))
    masked._keras_mask = tf.constant(kept.reshape(2, 12))
    np.testing.assert_allclose(flat(labels, masked), expected, **tolerance)
    # A class of its own may be ignored, too.
    counts = LABELS != 0
    loss = KINDS[kind](from_logits=True, ignore_class=0)
    np.testing.assert_allclose(
        loss(LABELS, LOGITS), flat(LABELS[counts], LOGITS[counts]), **tolerance
    )


def test_ignored_labels_are_those_of_keras():
    labels = np.where(np.arange(24) % 3 == 0, -1, LABELS)
    for reduction in ("sum_over_batch_size", "sum", "none"):
        options = dict(from_logits=True, ignore_class=-1, reduction=reduction)
        ours = ct.losses.NLL(**options)
        theirs = keras.losses.SparseCategoricalCrossentropy(**options)
        for weights in (None, WEIGHTS):
            np.testing.assert_allclose(
                ours(labels, LOGITS, weights),
                theirs(labels, LOGITS, weights),
                rtol=1e-5,  # Two ways to a cross-entropy: 3e-7.
                atol=1e-6,
            )


@pytest.mark.parametrize("name", ct.losses.PRIMARY)
def test_functions_are_0_where_an_example_is_ignored(name):
    function = get(name).function
    labels = np.where(np.arange(24) % 3 == 0, 255, LABELS).reshape(2, 12)
    logits = LOGITS.reshape(2, 12, 4)
    values = function(labels, logits, True, ignore_class=255)
    expected = np.reshape(function(LABELS, LOGITS, True), (2, 12))
    np.testing.assert_allclose(
        values, np.where(labels == 255, 0, expected), rtol=1e-6
    )
    masked = tf.constant(logits)
    masked._keras_mask = tf.constant(labels != 255)
    np.testing.assert_array_equal(function(labels, masked, True), values)


def test_fit_with_masked_tokens():
    tokens = np.array([[1, 2, 3, 0], [2, 3, 0, 0]])
    labels = np.array([[0, 1, 2, 99], [2, 1, 99, 99]])
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((4,), dtype="int32"),
            keras.layers.Embedding(5, 8, mask_zero=True),
            keras.layers.Dense(3),
        ]
    )
    loss = ct.CompositeLoss("nll", "mmce", from_logits=True)
    model.compile("sgd", loss, metrics=loss.part_metrics(), jit_compile=False)
    expected = loss(labels[tokens > 0], model(tokens)[tokens > 0])
    history = model.fit(tokens, labels, verbose=0).history
    np.testing.assert_allclose(history["loss"], [expected], rtol=1e-5)
