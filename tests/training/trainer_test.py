import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.training.run_folder import RunFolder
from tests.training import tiny


def _metrics():
    return [
        keras.metrics.SparseCategoricalAccuracy("accuracy"),
        keras.metrics.SparseCategoricalCrossentropy(
            "negative_log_likelihood", from_logits=True
        ),
    ]


def _network():
    return tiny.network(keras.layers.BatchNormalization(), dropout=0.1)


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
    trained = tiny.trainer(make_network=_network)
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
    assert "4/4" in shown
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

    # And a dataset that does not know how many batches it has.
    rows = tiny.trainer(make_network=make_network).fit(
        tiny.dataset().repeat(), 2, dataset_steps=3, verbose=False
    )
    assert rows[1]["train/loss"] < rows[0]["train/loss"]
    assert rows[1]["step"] == 6


@pytest.mark.parametrize(
    "options, message",
    [
        ({"loss": "nll"}, "`loss` must be"),
        ({"metrics": ["accuracy"]}, "`metrics` must hold"),
        ({"metrics": [keras.metrics.Mean("loss")]}, "names of their own"),
        ({"l2": -1.0}, "l2=-1.0"),
        ({"l2": 0.1, "l2_on": ["kernels"]}, "'bias', 'kernel'. .*'kernels'"),
        ({"steps_per_execution": 0}, "steps_per_execution=0"),
        ({"clip_norm": 0}, "clip_norm=0"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        tiny.trainer(**options)


def test_model_and_optimizer_belong_to_the_strategy(two_replicas):
    model, loss = tiny.network(), tiny.composite()
    optimizer = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match="inside `with strategy.scope"):
        ct.training.Trainer(model, loss, optimizer, two_replicas)
    with two_replicas.scope():
        model = tiny.network()
        optimizer = keras.optimizers.SGD(0.1, global_clipnorm=1.0)
    with pytest.raises(ValueError, match="Pass `clip_norm` to the `Trainer`"):
        ct.training.Trainer(model, loss, optimizer, two_replicas)
    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="must be built"):
        ct.training.Trainer(unbuilt, loss, keras.optimizers.SGD(0.1))


def test_other_backends_are_told_what_to_do(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="TensorFlow.*`model.fit`.*'jax'"):
        ct.training.Trainer(None, tiny.composite(), None)


def test_refuses_what_does_not_fit(two_replicas, tmp_path):
    trained = tiny.trainer()
    data = tiny.dataset()
    with pytest.raises(ValueError, match="Loss`. Received: loss=None"):
        trained.fit(data, 1, held_out=data)
    with pytest.raises(ValueError, match="`held_out` must be a `tf.data"):
        trained.fit(data, 1, calibration_loss=tiny.composite())
    with pytest.raises(ValueError, match="Pass `dataset_steps`"):
        trained.fit(data.filter(lambda x, y: True), 1)
    with pytest.raises(ValueError, match="dataset_steps=9, batches=4"):
        trained.fit(data, 1, dataset_steps=9)
    evaluations = {"test": data}
    with pytest.raises(ValueError, match="'test/loss'.*best='test/ece'"):
        trained.fit(data, 1, evaluations=evaluations, best="test/ece")
    with pytest.raises(ValueError, match=r"'test'. .*measures='tset'"):
        trained.fit(data, 1, evaluations=evaluations, measures={"tset": max})
    with pytest.raises(ValueError, match="No checkpoint was found"):
        trained.restore_best("/nowhere")
    with pytest.raises(ValueError, match="must be a `tf.data.Dataset`"):
        trained.fit([1, 2], 1)
    with pytest.raises(ValueError, match="keep=1"):
        trained.fit(data, 1, run=tmp_path, keep=1)
    replicated = tiny.trainer(two_replicas)
    ragged = tiny.dataset(drop_remainder=False)
    with pytest.raises(ValueError, match="drop_remainder=True"):
        replicated.fit(ragged, 1)
    with pytest.raises(ValueError, match="batch size=5, replicas=2"):
        replicated.fit(tiny.dataset(batch=5), 1)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    x, y = tiny.arrays()
    broken = x.copy()
    broken[37] = np.nan

    def data(epoch):
        rows = broken if epoch == 1 else x
        dataset = tf.data.Dataset.from_tensor_slices((rows, y))
        return dataset.batch(16, drop_remainder=True)

    # Without XLA, ReLU makes the NaN a 0, and it shows a step later.
    trained = tiny.trainer(l2=0.01, jit_compile=True)
    message = r"step 6: loss=nan, primary_loss=nan, .*l2_loss=0\.\d+"
    with pytest.raises(ct.training.NonFiniteLossError, match=message):
        trained.fit(data, 3, run=tmp_path, verbose=False)
    checkpoints = tf.train.latest_checkpoint(tmp_path / "checkpoints")
    assert checkpoints.endswith("ckpt-4")


def test_measures_see_all_predictions_and_pick_the_best(tmp_path):
    trained = tiny.trainer(make_network=_network)
    values = iter([float("nan"), 1.0, 2.0])
    seen, after = [], []

    def measure(outputs, labels):
        seen.append((outputs, labels))
        after.append(tiny.weights(trained))
        return {"mine": next(values), "rows": float(len(labels))}

    def fit(trainer):
        return trainer.fit(
            tiny.dataset(32),
            3,
            evaluations={
                "calibration": tiny.dataset(21, 8, drop_remainder=False),
                "test": tiny.dataset(),
            },
            measures={"calibration": measure},
            best="calibration/mine",
            run=tmp_path,
            verbose=False,
        )

    rows = fit(trained)
    assert [row["calibration/mine"] for row in rows[1:]] == [1.0, 2.0]
    assert all(row["calibration/rows"] == 21 for row in rows)
    assert "test/mine" not in rows[0]
    outputs, labels = seen[-1]
    np.testing.assert_array_equal(labels, tiny.arrays(21)[1])
    np.testing.assert_array_equal(
        outputs, trained.predict(tiny.dataset(21, 8, drop_remainder=False))
    )
    assert trained.restore_best(tmp_path) == 4
    for left, right in zip(after[1], tiny.weights(trained), strict=True):
        np.testing.assert_array_equal(left, right)
    # After the end nothing is measured, and the best is still the best.
    again = tiny.trainer(make_network=_network)
    assert fit(again)[1:] == rows[1:] and len(seen) == 3
    for left, right in zip(after[2], tiny.weights(again), strict=True):
        np.testing.assert_array_equal(left, right)
    assert again.restore_best(RunFolder(tmp_path)) == 4
    tiny.assert_same_weights(again, trained)


def test_writes_what_a_run_has(tmp_path):
    accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
    trained = tiny.trainer(metrics=[accuracy])
    rows = trained.fit(
        tiny.dataset(32),
        2,
        evaluations={"test": tiny.dataset(10, 4)},
        evaluate_every=2,
        run=tmp_path,
        config={"seed": 1},
        verbose=False,
    )
    assert json.loads((tmp_path / "config.json").read_text()) == {"seed": 1}
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert "test/accuracy" not in rows[0]
    assert {"train/accuracy", "train/loss", "test/accuracy"} <= set(rows[1])
    assert rows[1]["test/accuracy"] == pytest.approx(
        trained.evaluate(tiny.dataset(10, 4))["accuracy"]
    )
    tags = set()
    for name in os.listdir(tmp_path / "summaries"):
        path = str(tmp_path / "summaries" / name)
        for event in tf.compat.v1.train.summary_iterator(path):
            tags.update(value.tag for value in event.summary.value)
    assert {"train/loss", "batch/train/loss"} <= tags


def test_every_file_of_a_run_in_a_bucket():
    def fit():
        trained = tiny.trainer()
        options = {"evaluations": {"test": tiny.dataset(10, 4)}}
        rows = trained.fit(
            tiny.dataset(32),
            1,
            **options,
            best="test/loss",
            run="ram://bucket/fit",
            config={"seed": 1},
            verbose=False,
        )
        return trained, rows

    trained, rows = fit()
    assert set(tf.io.gfile.listdir("ram://bucket/fit")) == {
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "summaries",
    }
    assert not os.path.exists("ram:")
    again, same_rows = fit()
    assert same_rows == rows
    tiny.assert_same_weights(trained, again)
    fresh = tiny.network()
    folder = "ram://bucket/fit/checkpoints"
    assert ct.training.restore_model(folder, fresh, "best").endswith("best-2")
