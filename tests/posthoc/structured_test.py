"""Structured scaling against SciPy on the naive objective."""

import numpy as np
import pytest
from scipy.optimize import minimize

import caltrain_tf as ct
from caltrain_tf.posthoc import affine
from tests.posthoc.data import calibrated, mean_nll, softmax

# Of the few examples of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*cross-validated NLL")

K = 3
KINDS = ("StructuredVectorScaling", "StructuredMatrixScaling")


@pytest.fixture(scope="module")
def data():
    logits, labels = calibrated(300, K)
    # Wrong in a way that a temperature cannot mend.
    return 2 * logits * [1, 2, 0.5] + [1, 0, -1], labels


def parts(flat, is_matrix):
    """The changes of the diagonal and of all else, and the bias."""
    matrix = np.zeros((K, K))
    if is_matrix:
        matrix[~np.eye(K, dtype=bool)] = flat[2 * K :]
    return flat[:K], matrix, flat[K : 2 * K]


def objective_of(logits, labels, kind, strength, centred):
    """The definition, in float64 and with no regard to speed."""
    temperature = ct.posthoc.TemperatureScaling().fit(logits, labels)
    z = np.log(softmax(logits / temperature.temperature_))
    if centred:
        z = z - z.mean(axis=1, keepdims=True)

    def objective(flat):
        v, matrix, b = parts(flat, kind == KINDS[1])
        penalty = K * (b @ b + v @ v) + K * (K - 1) * np.sum(matrix**2)
        outputs = z @ (np.eye(K) + np.diag(v) + matrix).T + b
        return mean_nll(outputs, labels) + strength * penalty / len(labels)

    return objective


@pytest.mark.parametrize("centred", [None, False])
@pytest.mark.parametrize("strength", [1, 0.25])
@pytest.mark.parametrize("kind", KINDS)
def test_minimises_its_objective(data, kind, strength, centred):
    scaler = getattr(ct.posthoc, kind)(strength=strength, centred=centred)
    scaler.fit(*data)
    # The definition is centred, which is why a given strength is.
    assert scaler.centred_ == (centred is None)
    objective = objective_of(*data, kind, strength, centred is None)
    ours = [scaler.scale_ - 1, scaler.bias_]
    if kind == KINDS[1]:
        off = scaler.scale_[~np.eye(K, dtype=bool)]
        ours = [np.diag(scaler.scale_) - 1, scaler.bias_, off]
    ours = np.concatenate(ours)
    found = minimize(objective, 0 * ours, method="BFGS", tol=1e-9)
    # Seen 1.2e-10; at the start the objective is larger by 4e-2.
    assert objective(ours) == pytest.approx(found.fun, abs=1e-9)
    # Seen 8e-5, where the objective has no more digits; elements are about 0.1.
    np.testing.assert_allclose(ours, found.x, atol=1e-3)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_transform_is_the_formula(data, kind, centred):
    logits, labels = data
    scaler = getattr(ct.posthoc, kind)(strength=1.0, centred=centred)
    scaler.fit(logits, labels)
    z = np.log(softmax(logits / scaler.temperature_))
    if centred:
        z = z - z.mean(axis=1, keepdims=True)
    matrix = scaler.scale_
    if matrix.ndim == 1:
        matrix = np.diag(matrix)
    np.testing.assert_allclose(
        scaler.transform(logits), z @ matrix.T + scaler.bias_, rtol=1e-9
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_strength_is_temperature_scaling(data, kind):
    scaler = getattr(ct.posthoc, kind)(strength=1e9).fit(*data)
    plain = ct.posthoc.TemperatureScaling().fit(*data)
    assert scaler.temperature_ == plain.temperature_
    np.testing.assert_allclose(
        scaler.predict_proba(data[0]), plain.predict_proba(data[0]), atol=1e-6
    )


@pytest.mark.parametrize("centred", [None, True])
@pytest.mark.parametrize("kind", KINDS)
def test_cross_validation_finds_what_a_temperature_cannot_mend(kind, centred):
    logits, labels = calibrated(3000, K, seed=5)
    wrong = 2 * logits + [2, 0, -2]
    scaler = getattr(ct.posthoc, kind)(cv=3, centred=centred)
    scaler.fit(wrong[::2], labels[::2])
    assert scaler.strength_ in 4.0 ** np.arange(-5, 3)
    assert scaler.centred_ == bool(centred)
    after = mean_nll(scaler.transform(wrong[1::2]), labels[1::2])
    assert after < 1.01 * mean_nll(logits[1::2], labels[1::2])


@pytest.mark.parametrize("kind", KINDS)
def test_few_data_of_many_classes_do_not_overfit(kind):
    logits, labels = calibrated(300, 20, seed=6)
    new_logits, new_labels = calibrated(2000, 20, seed=7)
    plain = ct.posthoc.TemperatureScaling().fit(2 * logits, labels)
    scaler = getattr(ct.posthoc, kind)(cv=3).fit(2 * logits, labels)
    assert mean_nll(scaler.transform(2 * new_logits), new_labels) < (
        1.02 * mean_nll(plain.transform(2 * new_logits), new_labels)
    )


def test_chance_does_not_weaken_the_penalty():
    # Nothing is left to correct. 2 of 12 sets have a weaker penalty than 1; 7
    # would, if a step were taken for any smaller held-out loss.
    weaker = 0
    for seed in range(12):
        logits, labels = calibrated(60, 20, seed=seed)
        scaler = ct.posthoc.StructuredVectorScaling().fit(logits, labels)
        weaker += scaler.strength_ < 1
    assert weaker <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_folds_can_be_chosen(kind):
    logits, labels = calibrated(400, K, seed=4)
    chosen = [
        getattr(ct.posthoc, kind)(cv=cv).fit(2 * logits, labels).strength_
        for cv in (None, 2, 10)
    ]
    # Nothing is left to correct: chance takes one step at most.
    assert set(chosen) <= {0.25, 1.0, 4.0, 16.0}


def test_weights_count_in_the_standard_error():
    decrease = 0.05 + np.random.default_rng(0).normal(size=300)
    error = decrease.std() / np.sqrt(300)
    for factor in (0.9, 1.1):
        # The mean is moved to just below and just above its standard error.
        moved = decrease - decrease.mean() + factor * error
        assert affine.is_clear(moved, np.full(300, 1 / 300), 1.0) == (
            factor > 1
        )
    # A few rows of large weight have a larger standard error.
    weights = np.where(np.arange(300) < 3, 1.0, 1e-6)
    moved = decrease - np.average(decrease, weights=weights) + 1.1 * error
    assert not affine.is_clear(moved, weights / weights.sum(), 1.0)
    assert not affine.is_clear(0 * decrease, weights, 1.0)
