"""The affine calibrators against SciPy on the naive objective."""

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
NAMES = ("VectorScaling", "MatrixScaling", "DirichletCalibration", *KINDS)


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


@pytest.mark.parametrize("name", NAMES)
def test_a_strong_penalty_is_temperature_scaling(wrong_logits, name):
    option = "strength" if "Structured" in name else "penalty"
    if name == "DirichletCalibration":
        pytest.skip("its penalty is 0 elsewhere")
    scaler = getattr(ct.posthoc, name)(**{option: 1e9}).fit(*wrong_logits)
    plain = ct.posthoc.TemperatureScaling().fit(*wrong_logits)
    np.testing.assert_allclose(
        scaler.predict_proba(wrong_logits[0]),
        plain.predict_proba(wrong_logits[0]),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", NAMES)
def test_cross_validation_finds_what_a_temperature_cannot_mend(name):
    logits, labels = calibrated(3000, K, seed=5)
    wrong = 2 * logits + [2, 0, -2]
    scaler = getattr(ct.posthoc, name)().fit(wrong[::2], labels[::2])
    after = mean_nll(scaler.transform(wrong[1::2]), labels[1::2])
    assert after < 1.01 * mean_nll(logits[1::2], labels[1::2])


@pytest.mark.parametrize("name", NAMES)
def test_few_data_of_many_classes_do_not_overfit(name):
    logits, labels = calibrated(300, 20, seed=6)
    new_logits, new_labels = calibrated(2000, 20, seed=7)
    plain = ct.posthoc.TemperatureScaling().fit(2 * logits, labels)
    scaler = getattr(ct.posthoc, name)().fit(2 * logits, labels)
    assert mean_nll(scaler.transform(2 * new_logits), new_labels) < (
        1.03 * mean_nll(plain.transform(2 * new_logits), new_labels)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_gradients_are_those_of_finite_differences(kind, dtype):
    logits, labels = calibrated(50, K)
    rng = np.random.default_rng(1)
    centre = rng.normal(size=(K, K + 1 if kind == "matrix" else 2))
    parameters = centre + rng.normal(size=centre.shape)
    strength = rng.random(centre.shape)
    problem = affine.Problem(
        logits.astype(dtype), labels, rng.random(50), centre
    )
    value, gradient = problem.value_and_gradient(parameters, strength)
    gradient = gradient.reshape(centre.shape)
    exact = affine.Problem(logits, labels, problem.weights, centre)
    assert value == pytest.approx(
        exact.value_and_gradient(parameters, strength)[0], rel=1e-6
    )
    for index in np.ndindex(centre.shape):
        step = np.zeros_like(centre)
        step[index] = 1e-5
        up, down = (
            exact.value_and_gradient(parameters + sign * step, strength)[0]
            for sign in (1, -1)
        )
        # Rounding of float32 inputs; gradients are about 1.
        assert gradient[index] == pytest.approx((up - down) / 2e-5, abs=1e-5)


@pytest.mark.filterwarnings("ignore:The fit did not converge")
def test_harm_is_said_aloud():
    # 100 examples do not determine the 110 parameters of ten classes.
    logits, labels = calibrated(100, 10, seed=1, scale=4.0)
    with pytest.warns(UserWarning, match="more than the .* of temperature"):
        ct.posthoc.DirichletCalibration().fit(6 * logits, labels)


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

    def objective(flat, strength=strength):
        v, matrix, b = parts(flat, kind == KINDS[1])
        penalty = K * (b @ b + v @ v) + K * (K - 1) * np.sum(matrix**2)
        outputs = z @ (np.eye(K) + np.diag(v) + matrix).T + b
        return mean_nll(outputs, labels) + strength * penalty / len(labels)

    return objective


@pytest.mark.parametrize("centred", [None, False])
@pytest.mark.parametrize("strength", [1, 0.25])
@pytest.mark.parametrize("kind", KINDS)
def test_minimises_its_objective(wrong_logits, kind, strength, centred):
    scaler = getattr(ct.posthoc, kind)(strength=strength, centred=centred)
    scaler.fit(*wrong_logits)
    # The definition is centred, which is why a given strength is.
    assert scaler.centred_ == (centred is None)
    objective = objective_of(*wrong_logits, kind, strength, centred is None)
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
    # Without a penalty, it is the loss of what `transform` returns.
    calibrated = scaler.transform(wrong_logits[0])
    assert mean_nll(calibrated, wrong_logits[1]) == pytest.approx(
        objective(ours, strength=0), rel=1e-9
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
