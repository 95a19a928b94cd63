import keras
import numpy as np
import pytest

import caltrain_tf as ct
from tests.training import tiny


def _compiled(cross_replica=False, **options):
    loss = ct.losses.SBECE(from_logits=True)
    if cross_replica:
        loss = ct.CompositeLoss(loss, from_logits=True, cross_replica=True)
    model = ct.training.InterleavedModel(tiny.network(), loss)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, ct.losses.NLL(from_logits=True), **options)
    return model


@pytest.fixture(scope="module")
def trained():
    """A trainer that took both losses in turn."""
    trained = tiny.trainer(loss=ct.losses.NLL(from_logits=True))
    rows = trained.fit(
        tiny.dataset(48),
        2,
        held_out=tiny.dataset(32, seed=1),
        calibration_loss=ct.losses.SBECE(from_logits=True),
        verbose=False,
    )
    assert [row["step"] for row in rows] == [5, 10]
    assert {"train/loss", "held_out/loss"} <= set(rows[0])
    return trained


def test_the_trainer_takes_one_loss_after_the_other(trained):
    apart = tiny.trainer(loss=ct.losses.NLL(from_logits=True))
    other = ct.training.Trainer(
        apart.model,
        ct.losses.SBECE(from_logits=True),
        apart.optimizer,
        apart.strategy,
        jit_compile=False,
    )
    for _ in range(2):
        apart.fit(tiny.dataset(48), 1, verbose=False)
        other.fit(tiny.dataset(32, seed=1), 1, verbose=False)
    tiny.assert_same_weights(trained, apart)


def test_equals_the_trainer(trained):
    model = _compiled(jit_compile=True)
    both = ct.training.interleave(tiny.dataset(48), tiny.dataset(32, seed=1))
    model.fit(both, epochs=2, verbose=0, shuffle=False)
    for left, right in zip(tiny.weights(trained), model.weights, strict=True):
        np.testing.assert_allclose(left, right.numpy(), rtol=2e-5, atol=2e-6)


def test_two_replicas(two_replicas):
    both = ct.training.interleave(tiny.dataset(16), tiny.dataset(16, seed=1))
    one = _compiled(cross_replica=True)
    of_one = one.fit(both, verbose=0, shuffle=False).history
    with two_replicas.scope():
        two = _compiled(cross_replica=True, jit_compile=False)
    of_two = two.fit(both, verbose=0, shuffle=False).history
    # Half or twice of it where the number of replicas is forgotten.
    np.testing.assert_allclose(
        of_two["calibration_loss"], of_one["calibration_loss"], rtol=1e-3
    )
    for left, right in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(
            left.numpy(), right.numpy(), rtol=2e-5, atol=2e-6
        )


def test_the_history_has_the_calibration_loss():
    held_out, val = tiny.dataset(32, seed=1), tiny.dataset(16, seed=2)
    model = _compiled()
    model.optimizer.learning_rate = 0.0
    both = ct.training.interleave(tiny.dataset(16), held_out)
    history = model.fit(
        both, validation_data=val, epochs=2, verbose=0, shuffle=False
    ).history
    loss = ct.losses.SBECE(from_logits=True)
    shown = {"calibration_loss": held_out, "val_calibration_loss": val}
    for name, data in shown.items():
        expected = np.mean([float(loss(y, model(x))) for x, y in data])
        np.testing.assert_allclose(history[name], [expected] * 2, rtol=1e-4)


def test_saves_and_takes_plain_inputs(tmp_path):
    model = _compiled(metrics=["accuracy"])
    both = ct.training.interleave(tiny.dataset(32), tiny.dataset(16, seed=1))
    model.fit(both, verbose=0, shuffle=False)
    x, y = tiny.arrays(20)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    expected = model.predict(x, verbose=0)
    np.testing.assert_array_equal(copy.predict(x, verbose=0), expected)
    np.testing.assert_array_equal(model.model.predict(x, verbose=0), expected)
    assert copy.calibration_loss.get_config() == (
        model.calibration_loss.get_config()
    )
    loss = model.evaluate(x, y, verbose=0)[0]
    nll = ct.losses.NLL(from_logits=True)(y, expected)
    np.testing.assert_allclose(loss, float(nll), rtol=1e-5)


def test_weights_and_penalties_reach_the_calibration_loss():
    x, y = tiny.arrays(16)
    weight = np.r_[np.ones(8), np.zeros(8)].astype("float32")
    model = _compiled()
    kernel = model.model.layers[-1].kernel
    kernel.regularizer = keras.regularizers.L2(0.1)
    penalty = 0.1 * np.sum(kernel.numpy() ** 2)
    marked = {"inputs": x, "held_out": np.ones(16, "float32")}
    value = model.compute_loss(marked, y, model(x), weight)
    expected = ct.losses.SBECE(from_logits=True)(y[:8], model(x[:8])) + penalty
    np.testing.assert_allclose(float(value), float(expected), rtol=1e-5)


def test_the_calibration_loss_is_a_loss():
    with pytest.raises(ValueError, match="calibration_loss='sb_ece'"):
        ct.training.InterleavedModel(tiny.network(), "sb_ece")


# The paper's table of train and test ECE, l1 norm and equal-width bins.
@pytest.mark.parametrize(
    "train_ece, test_ece", [(0.0045, 0.0688), (0.0005, 0.0266), (0.0, 0.01)]
)
def test_warns(train_ece, test_ece):
    with pytest.warns(UserWarning, match="Train interleaved"):
        assert ct.training.warn_if_memorised(train_ece, test_ece)


@pytest.mark.parametrize(
    "train_ece, test_ece",
    [(0.0918, 0.0421), (0.0249, 0.0351), (0.008, 0.009), (0.0, 0.0)],
)
def test_is_silent(train_ece, test_ece):
    assert not ct.training.warn_if_memorised(train_ece, test_ece)


def test_percents_are_refused():
    with pytest.raises(ValueError, match="test_ece=6.88"):
        ct.training.warn_if_memorised(0.45, 6.88)
