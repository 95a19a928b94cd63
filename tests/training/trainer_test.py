import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny


def _metrics():
    return [
        keras.metrics.SparseCategoricalAccuracy("accuracy"),
        keras.metrics.SparseCategoricalCrossentropy(
            "negative_log_likelihood", from_logits=True
        ),
    ]


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_example_counts_once(two_replicas, replicas):
    strategy = two_replicas if replicas == 2 else None
    loss = ct.losses.NLL(from_logits=True)
    trained = tiny.trainer(
        strategy, loss=loss, metrics=_metrics(), jit_compile=True
    )
    x, y = tiny.arrays(21)
    logits = x @ tiny.weights(trained)[0] + tiny.weights(trained)[1]
    kernel, bias = tiny.weights(trained)[2:]
    logits = np.maximum(logits, 0) @ kernel + bias
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

    predicted, labels = trained.predict(data, with_labels=True)
    np.testing.assert_allclose(predicted, logits, atol=1e-5)
    np.testing.assert_array_equal(labels, y)

    values = trained.evaluate(data)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    nll = -log_probs[np.arange(21), y]
    assert values == pytest.approx(
        {
            "loss": nll.mean(),
            "accuracy": np.mean(logits.argmax(axis=1) == y),
            "negative_log_likelihood": nll.mean(),
        },
        rel=1e-4,
    )
    # A second look starts anew.
    assert trained.evaluate(data) == values

    weight = (np.arange(21) % 3).astype("float32")
    weighted = tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(8)
    values = trained.evaluate(weighted)
    expected = np.sum(nll * weight) / np.sum(weight)
    assert values["loss"] == pytest.approx(expected, rel=1e-4)
    assert values["negative_log_likelihood"] == pytest.approx(
        expected, rel=1e-4
    )
    np.testing.assert_array_equal(
        trained.predict(weighted), predicted[weight != 0]
    )


def test_evaluation_changes_nothing():
    def make_network():
        return tiny.network(keras.layers.BatchNormalization(), dropout=0.5)

    trained = tiny.trainer(make_network=make_network)
    before = [variable.numpy() for variable in trained.model.variables]
    trained.evaluate(tiny.dataset())
    trained.predict(tiny.dataset())
    for start, variable in zip(before, trained.model.variables, strict=True):
        np.testing.assert_array_equal(start, variable.numpy())


def test_training_metrics_are_those_of_the_epoch(capsys):
    trained = tiny.trainer(metrics=_metrics(), steps_per_execution=3)
    for variable in trained.optimizer.variables:
        if variable.name == "learning_rate":
            variable.assign(0.0)
    rows = trained.fit(tiny.dataset(), 1)
    values = trained.evaluate(tiny.dataset())
    for name in ("accuracy", "negative_log_likelihood", "loss"):
        assert rows[0][f"train/{name}"] == pytest.approx(values[name], rel=1e-5)
    shown = capsys.readouterr().err
    assert "step 3/4  loss" in shown
    assert "epoch 1/1\n  train: loss" in shown


def test_a_model_whose_call_has_no_training():
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(tiny.CLASSES)

        def call(self, x):
            return self.dense(x)

    def make_network():
        model = Plain()
        model(np.zeros((1, tiny.FEATURES), "float32"))
        return model

    rows = tiny.trainer(make_network=make_network).fit(
        tiny.dataset(), 2, verbose=False
    )
    assert rows[1]["train/loss"] < rows[0]["train/loss"]
