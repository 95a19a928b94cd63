import keras
import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.training.objective import Objective

LOGITS = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
LABELS = np.array([0, 1, 2, 0, 1, 0])
WEIGHT = np.array([1, 2, 0.5, 1, 0, 0], "float32")


def test_terms_of_a_composite_loss():
    loss = ct.CompositeLoss("nll", "sb_ece", beta=0.5, from_logits=True)
    objective = Objective(loss, l2=0.1)
    terms = objective(LABELS, LOGITS, WEIGHT, 2.0, [3.0]).numpy()
    named = dict(zip(objective.names, terms, strict=True))
    value = float(loss(LABELS, LOGITS, WEIGHT))
    primary, secondary = loss.parts(LABELS, LOGITS, WEIGHT)
    assert named == pytest.approx(
        {
            "loss": value + 2.0 + 3.0,
            "primary_loss": float(primary),
            "secondary_loss": float(secondary),
            "l2_loss": 2.0,
        }
    )


def test_terms_of_a_keras_loss():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    objective = Objective(loss)
    assert objective.names == ("loss",)
    terms = objective(LABELS, LOGITS, WEIGHT, None, []).numpy()
    expected = [float(loss(LABELS, LOGITS, WEIGHT))]
    np.testing.assert_allclose(terms, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ct.losses.Focal(from_logits=True),
        ct.losses.SBECE(from_logits=True),
        ct.CompositeLoss("nll", "mmce", from_logits=True),
    ],
)
def test_evaluation_is_a_weighted_mean_without_padding(loss):
    padded = Objective(loss).evaluate(LABELS, LOGITS, WEIGHT).numpy()
    whole = Objective(loss).evaluate(LABELS[:4], LOGITS[:4], WEIGHT[:4]).numpy()
    np.testing.assert_allclose(padded, whole, rtol=1e-5)


def test_penalty_takes_the_named_variables():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(3)])
    model.set_weights([np.full((2, 3), 2.0), np.full(3, 3.0)])
    variables = model.trainable_variables
    values = [variable.value for variable in variables]
    loss = ct.losses.NLL()
    everything = Objective(loss, l2=0.5).penalty(variables, values)
    kernels = Objective(loss, 0.5, ("kernel",)).penalty(variables, values)
    assert float(everything) == 0.5 * (6 * 4 + 3 * 9)
    assert float(kernels) == 0.5 * 6 * 4
