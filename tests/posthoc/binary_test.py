"""Platt, beta and isotonic curves against scikit-learn and naive fits."""

import keras
import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import caltrain_tf as ct
from tests.posthoc.data import softmax


def binary(count, seed=0, power=1.7):
    """Logits, and labels that are 1 with probability sigmoid(logit)^power."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=count)
    labels = generator.random(count) < sigmoid(logits) ** power
    return logits, labels.astype(int), generator.random(count)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def exact_logistic(columns, labels, weight):
    """Coefficients and intercept of scikit-learn's logistic regression."""
    fit = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)
    fit.fit(np.stack(columns, axis=1), labels, weight)
    return *fit.coef_[0], fit.intercept_[0]


@pytest.mark.parametrize("count", [50, 3000])
@pytest.mark.parametrize("weighted", [False, True])
def test_platt_is_logistic_regression(count, weighted):
    logits, labels, weight = binary(count)
    weight = weight if weighted else None
    scaler = ct.posthoc.PlattScaling().fit(logits, labels, weight)
    a, b = exact_logistic([logits], labels, weight)
    # Errors of 1e-8 were seen: the tolerance of L-BFGS-B.
    np.testing.assert_allclose(scaler.a_, a, rtol=1e-6)
    np.testing.assert_allclose(scaler.b_, b, rtol=1e-6)
    np.testing.assert_allclose(
        scaler.predict_proba(logits), sigmoid(a * logits + b), rtol=1e-6
    )
    wrong = ct.posthoc.PlattScaling().fit(-logits, labels, weight)
    np.testing.assert_allclose(wrong.a_, -scaler.a_, rtol=1e-6)


# The power of 1.7 needs a, b > 0; the others push a coefficient to 0.
@pytest.mark.parametrize("power", [1.7, 8.0, 0.1])
def test_beta_is_logistic_regression_without_negative_slopes(power):
    logits, labels, weight = binary(400, power=power)
    probs = sigmoid(logits)
    columns = np.log(probs), -np.log(1 - probs)
    a, b, c = exact_logistic(columns, labels, weight)
    if a < 0:
        a, (b, c) = 0.0, exact_logistic(columns[1:], labels, weight)
    elif b < 0:
        b, (a, c) = 0.0, exact_logistic(columns[:1], labels, weight)
    scaler = ct.posthoc.BetaCalibration(from_probs=True)
    scaler.fit(probs, labels, weight)
    # Errors of 1e-6 were seen: the tolerance of L-BFGS-B.
    np.testing.assert_allclose(
        [scaler.a_[0], scaler.b_[0], scaler.c_[0]], [a, b, c], atol=1e-5
    )
    np.testing.assert_allclose(
        scaler.predict_proba(probs),
        sigmoid(a * columns[0] + b * columns[1] + c),
        rtol=1e-5,
    )


@pytest.mark.parametrize("count", [12, 1000])
@pytest.mark.parametrize("from_probs", [False, True])
def test_isotonic_is_that_of_scikit_learn(count, from_probs):
    logits, labels, weight = binary(count)
    new = 3 * np.random.default_rng(1).normal(size=500)
    if from_probs:
        logits, new = sigmoid(logits), sigmoid(new)
    scaler = ct.posthoc.IsotonicCalibration(from_probs=from_probs)
    scaler.fit(logits, labels, weight)
    reference = IsotonicRegression(out_of_bounds="clip")
    reference.fit(logits, labels, weight)
    smallest = 1 / (count + 2)
    for values in (logits, new):
        np.testing.assert_allclose(
            scaler.predict_proba(values),
            np.clip(reference.predict(values), smallest, 1 - smallest),
            rtol=1e-10,
        )


@pytest.mark.parametrize(
    "name", ["PlattScaling", "BetaCalibration", "IsotonicCalibration"]
)
def test_each_class_against_all_others(name):
    generator = np.random.default_rng(0)
    logits = 3 * generator.normal(size=(500, 3))
    labels = (logits + 2 * generator.gumbel(size=logits.shape)).argmax(axis=1)
    scaler = getattr(ct.posthoc, name)().fit(logits, labels)
    one = getattr(ct.posthoc, name)()
    probs = softmax(logits)
    columns = []
    for k in range(3):
        odds = np.log(probs[:, k]) - np.log(1 - probs[:, k])
        columns.append(one.fit(odds, labels == k).predict_proba(odds))
    columns = np.stack(columns, axis=1)
    np.testing.assert_allclose(
        scaler.predict_proba(logits),
        columns / columns.sum(axis=1, keepdims=True),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    "name", ["PlattScaling", "BetaCalibration", "IsotonicCalibration"]
)
@pytest.mark.parametrize("shape", ["binary", "pairs", "labels"])
def test_layer_of_binary_outputs(name, shape, tmp_path):
    logits, labels, _ = binary(300)
    options = {"multi_label": shape == "labels"}
    if shape == "pairs":
        logits = np.stack([0.3 * logits, 1.3 * logits], axis=1)
    if shape == "labels":
        logits, labels = logits.reshape(100, 3), labels.reshape(100, 3)
    if shape == "binary":
        logits = logits[:, None]
    scaler = getattr(ct.posthoc, name)(**options).fit(logits, labels)
    single = getattr(ct.posthoc, name)().fit(*binary(300)[:2])
    for attribute in scaler.fitted_names:
        np.testing.assert_allclose(
            getattr(scaler, attribute), getattr(single, attribute), rtol=1e-6
        )
    width = logits.shape[1]
    inputs = keras.Input((width,))
    model = scaler.append_to(
        keras.Model(inputs, keras.layers.Dense(width)(inputs)),
        probabilities=True,
    )
    model.layers[1].set_weights([np.eye(width), np.zeros(width)])
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        model(logits.astype("float32")),
        scaler.predict_proba(logits),
        # 3e-4 was seen: float32 on a steep line between two examples.
        rtol=3e-3,
        atol=1e-6,
    )


def test_saturated_logits_stay_exact():
    logits = np.array([[800.0, 0.0, -5.0], [0.0, 800.0, 3.0], [1.0, 0.0, 2.0]])
    scaler = ct.posthoc.PlattScaling()
    scaler.a_, scaler.b_, scaler.num_classes_ = np.ones(3), np.zeros(3), 3
    np.testing.assert_allclose(
        scaler.predict_proba(logits), softmax(logits), rtol=1e-12
    )
    np.testing.assert_allclose(
        scaler.as_layer()(logits.astype("float32")),
        scaler.transform(logits),
        rtol=1e-5,
    )
    with pytest.warns(UserWarning, match="separates the labels"):
        scaler = ct.posthoc.BetaCalibration().fit(logits, [1, 0, 2])
    assert np.all(np.isfinite(scaler.transform(logits)))


def test_separable_labels_and_missing_classes():
    logits = np.array([-2.0, -1.0, 1.0, 2.0])
    with pytest.warns(UserWarning, match="separates the labels"):
        scaler = ct.posthoc.PlattScaling().fit(logits, [0, 0, 1, 1])
    assert np.all(np.isfinite([scaler.a_, scaler.b_]))
    for name in ("PlattScaling", "BetaCalibration", "IsotonicCalibration"):
        scaler = getattr(ct.posthoc, name)().fit(logits, [0, 0, 0, 0])
        np.testing.assert_allclose(scaler.predict_proba(logits), 1 / 6)


@pytest.mark.parametrize("name", ["PlattScaling", "BetaCalibration"])
def test_equal_predictions_become_the_shares_of_the_labels(name):
    labels = np.arange(12) % 4 == 0
    scaler = getattr(ct.posthoc, name)().fit(np.full(12, -1.3), labels)
    np.testing.assert_allclose(scaler.predict_proba([-1.3]), 0.25, rtol=1e-6)
    # Rounding in the mean of 12 equal numbers does not become a slope.
    assert np.all(np.abs(scaler.a_) <= 2)
