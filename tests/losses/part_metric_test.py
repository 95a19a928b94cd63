import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.losses.composite_test import small_data
from tests.losses.composite_test import small_model


def compiled(loss, **options):
    model = small_model()
    model.compile(
        keras.optimizers.SGD(0.0), loss, metrics=loss.part_metrics(), **options
    )
    return model


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_shows_the_parts(jit_compile):
    features, labels = small_data(40)
    loss = ct.CompositeLoss("focal", "sb_ece", beta=0.3, from_logits=True)
    model = compiled(loss, jit_compile=jit_compile)
    history = model.fit(
        features,
        labels,
        validation_data=(features, labels),
        batch_size=20,
        shuffle=False,
        verbose=0,
    ).history
    logits = model.predict(features, verbose=0)
    halves = [
        loss.parts(labels[rows], logits[rows])
        for rows in (slice(20), slice(20, 40))
    ]
    primary, secondary = np.mean(halves, axis=0)
    np.testing.assert_allclose(history["primary_loss"], primary, rtol=1e-5)
    np.testing.assert_allclose(history["secondary_loss"], secondary, rtol=1e-5)
    np.testing.assert_allclose(
        history["val_loss"], primary + 0.3 * secondary, rtol=1e-5
    )
    assert "val_secondary_loss" in history


def test_a_primary_alone_has_one_part():
    loss = ct.CompositeLoss("nll", from_logits=True)
    assert [metric.name for metric in loss.part_metrics()] == ["primary_loss"]


def test_parts_reach_tensorboard(tmp_path):
    features, labels = small_data(40)
    loss = ct.CompositeLoss("nll", "mmce", from_logits=True)
    model = compiled(loss)
    callback = keras.callbacks.TensorBoard(tmp_path)
    model.fit(features, labels, callbacks=[callback], verbose=0)
    (events,) = (tmp_path / "train").glob("events*")
    tags = {
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert {"epoch_primary_loss", "epoch_secondary_loss"} <= tags


def test_replicas_report_the_global_parts(two_replicas):
    features, labels = small_data(40)
    reports = []
    for strategy in (tf.distribute.get_strategy(), two_replicas):
        with strategy.scope():
            loss = ct.CompositeLoss(
                "nll", "mmce", from_logits=True, cross_replica=True
            )
            model = compiled(loss, jit_compile=False)
        reports.append(
            model.evaluate(
                features, labels, batch_size=40, return_dict=True, verbose=0
            )
        )
    assert set(reports[0]) == {"loss", "primary_loss", "secondary_loss"}
    for name, value in reports[0].items():
        np.testing.assert_allclose(reports[1][name], value, rtol=1e-5)


def test_weights_reach_the_parts():
    features, labels = small_data(10)
    logits = small_model()(features)
    weights = (np.arange(10) % 2).astype("float32")
    loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    for index, metric in enumerate(loss.part_metrics()):
        metric.update_state(labels, logits, sample_weight=weights)
        np.testing.assert_allclose(
            metric.result(), loss.parts(labels, logits, weights)[index]
        )
    with pytest.raises(ValueError, match="`part`.*part='third'"):
        ct.losses.PartMetric(loss, "third")
