"""What a user gets wrong, said aloud: eagerly, in `fit` and under XLA."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.losses.cases import NAMES, OF_LOGITS, batch, get
from tests.losses.composite_test import small_data, small_model

BAD_LABELS = {
    "off by one": lambda y: y + 1,
    "several of a row": lambda y: np.eye(3, dtype="f")[y] + np.eye(3)[0],
}


def fit(loss, labels, activation=None, jit_compile=False, metrics=()):
    features, _ = small_data()
    model = small_model(activation=activation)
    model.compile("sgd", loss, metrics=metrics, jit_compile=jit_compile)
    return model.fit(features, labels, verbose=0).history["loss"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("off by one", "`y_true` must hold class ids from 0 to 2"),
        ("several of a row", "pass `multi_label=True`"),
    ],
)
def test_bad_labels_raise_in_fit(kind, message):
    labels = BAD_LABELS[kind](small_data()[1])
    loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fit(loss, labels)
    with pytest.raises(ValueError, match=message):
        loss(labels, np.zeros((44, 3), "float32"))


def test_under_xla_bad_labels_and_undeclared_logits_are_nan():
    labels, logits = batch(11, 3)
    loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    undeclared = ct.CompositeLoss("mse", "s_avuc")

    @tf.function(jit_compile=True)
    def all_mistakes():
        return (
            *(loss(make(labels), logits) for make in BAD_LABELS.values()),
            undeclared(labels, tf.constant(logits)),
        )

    assert np.isnan(all_mistakes()).all()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_from_logits_on_a_softmax(jit_compile):
    loss = ct.losses.NLL(from_logits=True)
    with pytest.warns(UserWarning, match="from_logits=False") as caught:
        fit(loss, small_data()[1], "softmax", jit_compile)
    assert {w.filename for w in caught} == {__file__}


def test_fit_probabilities_on_logits():
    loss = ct.losses.NLL()
    with pytest.warns(UserWarning, match="Pass `from_logits=True`"):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="pass `from_logits=True`"
        ):
            fit(loss, small_data()[1])


def test_fit_as_it_should_be_is_silent():
    labels = small_data()[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(ct.losses.NLL(), labels, "softmax")
        fit(ct.losses.NLL(from_logits=True), labels)


def test_called_eagerly():
    labels, logits = batch(6, 4)
    probs = keras.activations.softmax(logits)
    for name in NAMES:
        if name in OF_LOGITS:
            with pytest.raises(ValueError, match="`from_logits` must be True"):
                ct.losses.get(name)
            with pytest.raises(ValueError, match="`from_logits` must be True"):
                ct.CompositeLoss("nll", name)
        else:
            with pytest.raises(ValueError, match="from_logits=True"):
                get(name)(labels, logits)
        for y_pred in (probs, np.asarray(probs)):
            with pytest.warns(UserWarning, match="from_logits=False"):
                get(name, from_logits=True)(labels, y_pred)


def test_a_softmax_is_seen_through_casts_and_shapes():
    loss = ct.losses.NLL(from_logits=True)

    @tf.function
    def value(logits):
        probs = tf.reshape(tf.cast(tf.nn.softmax(logits), "float16"), (-1, 3))
        return loss([0, 1], probs)

    with pytest.warns(UserWarning, match="from_logits=False"):
        value(tf.zeros((2, 3)))
