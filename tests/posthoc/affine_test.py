"""The affine calibrators against SciPy on the naive objective."""

import numpy as np
import pytest
from scipy.optimize import minimize

import caltrain_tf as ct
from caltrain_tf.posthoc import affine, data, regression
from tests.posthoc.data import calibrated, mean_nll

K = 3


@pytest.fixture(scope="module")
def wrong_logits():
    logits, labels = calibrated(400, K)
    # Wrong in a way that a temperature cannot mend.
    return 2 * logits * [1, 2, 0.5] + [1, 0, -1], labels


def log_softmax(logits):
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def best(objective, size):
    found = minimize(objective, np.zeros(size), method="BFGS", tol=1e-9)
    return found.fun


def test_vector_scaling_minimises_its_objective(wrong_logits):
    logits, labels = wrong_logits
    temperature = (
        ct.posthoc.TemperatureScaling().fit(logits, labels).temperature_
    )
    inputs = logits / temperature

    def objective(flat):
        scale, bias = 1 + flat[:K], flat[K:]
        penalty = np.mean((scale - 1) ** 2) + np.mean(bias**2)
        return mean_nll(inputs * scale + bias, labels) + 0.1 * penalty

    scaler = ct.posthoc.VectorScaling(penalty=0.1).fit(logits, labels)
    ours = np.concatenate([scaler.scale_ * temperature - 1, scaler.bias_])
    assert objective(ours) == pytest.approx(best(objective, 2 * K), abs=1e-9)


def test_matrix_scaling_minimises_its_objective(wrong_logits):
    logits, labels = wrong_logits
    temperature = (
        ct.posthoc.TemperatureScaling().fit(logits, labels).temperature_
    )
    inputs = logits / temperature

    def objective(flat):
        change, bias = flat[: K * K].reshape(K, K), flat[K * K :]
        penalty = np.mean(change**2) + np.mean(bias**2)
        outputs = inputs @ (np.eye(K) + change).T + bias
        return mean_nll(outputs, labels) + 0.1 * penalty

    scaler = ct.posthoc.MatrixScaling(penalty=0.1).fit(logits, labels)
    change = scaler.scale_ * temperature - np.eye(K)
    ours = np.concatenate([change.ravel(), scaler.bias_])
    expected = best(objective, K * K + K)
    assert objective(ours) == pytest.approx(expected, abs=1e-9)


def test_dirichlet_calibration_minimises_odir(wrong_logits):
    logits, labels = wrong_logits
    inputs = log_softmax(logits)

    def objective(flat):
        scale, bias = flat[: K * K].reshape(K, K), flat[K * K :]
        off = scale[~np.eye(K, dtype=bool)]
        penalty = 0.05 * np.mean(off**2) + 0.2 * np.mean(bias**2)
        return mean_nll(inputs @ scale.T + bias, labels) + penalty

    scaler = ct.posthoc.DirichletCalibration(off_diagonal=0.05, intercept=0.2)
    scaler.fit(logits, labels)
    ours = np.concatenate([scaler.scale_.ravel(), scaler.bias_])
    expected = best(objective, K * K + K)
    assert objective(ours) == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(
        scaler.transform(logits),
        inputs @ scaler.scale_.T + scaler.bias_,
        rtol=1e-9,
    )
    assert (scaler.off_diagonal_, scaler.intercept_) == (0.05, 0.2)


@pytest.mark.parametrize("name", ["VectorScaling", "MatrixScaling"])
def test_a_strong_penalty_is_temperature_scaling(wrong_logits, name):
    scaler = getattr(ct.posthoc, name)(penalty=1e9).fit(*wrong_logits)
    plain = ct.posthoc.TemperatureScaling().fit(*wrong_logits)
    np.testing.assert_allclose(
        scaler.transform(wrong_logits[0]),
        plain.transform(wrong_logits[0]),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    "name", ["VectorScaling", "MatrixScaling", "DirichletCalibration"]
)
def test_cross_validation_finds_what_a_temperature_cannot_mend(name):
    logits, labels = calibrated(3000, K, seed=5)
    wrong = 2 * logits + [2, 0, -2]
    scaler = getattr(ct.posthoc, name)(cv=3).fit(wrong[::2], labels[::2])
    after = mean_nll(scaler.transform(wrong[1::2]), labels[1::2])
    assert after < 1.01 * mean_nll(logits[1::2], labels[1::2])


@pytest.mark.parametrize(
    "name", ["VectorScaling", "MatrixScaling", "DirichletCalibration"]
)
def test_few_data_of_many_classes_do_not_overfit(name):
    logits, labels = calibrated(300, 20, seed=6)
    new_logits, new_labels = calibrated(2000, 20, seed=7)
    plain = ct.posthoc.TemperatureScaling().fit(2 * logits, labels)
    scaler = getattr(ct.posthoc, name)(cv=3).fit(2 * logits, labels)
    assert mean_nll(scaler.transform(2 * new_logits), new_labels) < (
        1.03 * mean_nll(plain.transform(2 * new_logits), new_labels)
    )


def test_a_large_matrix_reaches_the_same_optimum(monkeypatch):
    logits, labels = calibrated(300, 6)
    scaler = ct.posthoc.MatrixScaling(penalty=1.0)
    expected = scaler.fit(logits, labels).scale_
    monkeypatch.setattr(regression, "FEW_PARAMETERS", 0)
    np.testing.assert_allclose(
        # Seen 2e-6; elements are about 0.1 and more.
        scaler.fit(logits, labels).scale_,
        expected,
        atol=2e-5,
    )


def test_a_vector_is_cross_validated_by_leaving_out_one():
    logits, labels = calibrated(400, 5, seed=8)
    wrong = logits * [1, 2, 1, 0.5, 1] + [1, 0, 0, 0, -1]
    new_logits, new_labels = calibrated(4000, 5, seed=9)
    new_wrong = new_logits * [1, 2, 1, 0.5, 1] + [1, 0, 0, 0, -1]
    by_default = ct.posthoc.VectorScaling().fit(wrong, labels)
    by_folds = ct.posthoc.VectorScaling(cv=20).fit(wrong, labels)
    # Neighbours on the path of penalties at most.
    assert 0.05 < by_default.penalty_ / by_folds.penalty_ < 20
    losses = [
        mean_nll(scaler.transform(new_wrong), new_labels)
        for scaler in (by_default, by_folds)
    ]
    assert losses[0] < 1.005 * losses[1]


@pytest.mark.parametrize("kind", ["vector", "matrix", "stream"])
def test_cross_validation_is_the_same_without_copies(monkeypatch, kind):
    logits, labels = calibrated(600, 4, seed=3)
    # Rows that do not count have no fold.
    weights = np.where(np.arange(600) % 7 == 0, 0.0, 1.0)
    scale = np.eye(4) if kind == "matrix" else np.ones((4, 1))
    identity = np.hstack([scale, np.zeros((4, 1))])
    monkeypatch.setattr(affine, "LEAST_ROWS", 500)
    given = logits, labels, weights
    if kind == "stream":
        given = ([tuple(each[i::3] for each in given) for i in range(3)],)
    results = []
    for small in (data.SMALL_BYTES, 0):
        monkeypatch.setattr(data, "SMALL_BYTES", small)
        rows = data.read(*given)
        validation = affine.CrossValidation(rows, 514, None, identity, identity)
        strength = np.full(identity.shape, 0.1)
        first = validation.fit(strength)
        second = validation.fit(0.1 * strength, first)
        assert (first[0].kept is None) == (small == 0)
        mass, difference = validation.sum(
            lambda w, a, b: (w.sum(), w @ (a - b)), first, second
        )
        results.append((mass, difference / mass))
    assert results[0][0] == results[1][0] == 514
    # The batches of a stream have other samples for the curvature, and fits end
    # early: seen 5e-6 of 2e-3. Otherwise the numbers are the same.
    tolerance = 5e-5 if kind == "stream" else 1e-9
    assert results[0][1] == pytest.approx(results[1][1], abs=tolerance)


def test_threads_fit_the_same_folds(monkeypatch):
    logits, labels = calibrated(300, 4, seed=3)
    one_by_one = ct.posthoc.MatrixScaling().fit(logits, labels)
    monkeypatch.setattr(affine, "SMALLEST_THREADED", 0)
    at_once = ct.posthoc.MatrixScaling().fit(logits, labels)
    assert at_once.penalty_ == one_by_one.penalty_
    np.testing.assert_array_equal(at_once.scale_, one_by_one.scale_)


def test_a_single_row_holds_nothing_out():
    identity = np.hstack([np.ones((3, 1)), np.zeros((3, 1))])
    rows = data.Rows(np.zeros((1, 3)), np.zeros(1, int))
    validation = affine.CrossValidation(rows, 1.0, None, identity, identity)
    best, _, start = validation.choose([identity])
    assert best == 0
    assert start is identity
