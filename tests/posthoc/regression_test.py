"""The solver of affine maps against dense linear algebra and refits."""

import numpy as np
import pytest
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning

from caltrain_tf.posthoc import data, regression
from tests.posthoc.data import calibrated, softmax

K = 4


def identity_of(kind, num_classes=K):
    scale = np.eye(num_classes) if kind == "matrix" else np.ones((K, 1))
    return np.hstack([scale, np.zeros((num_classes, 1))])


def rows_of(count=300, num_classes=K, weighted=False, seed=0):
    inputs, labels = calibrated(count, num_classes, seed=seed)
    weights = None
    if weighted:
        weights = np.random.default_rng(1).uniform(0.1, 1.0, size=count)
    return data.Rows(2 * inputs - 3, labels, weights)


def features_of(rows, kind):
    """The inputs of each class with a 1 for the bias, `(n, K, m)`."""
    values = rows.values
    if kind == "vector":
        return np.stack([values, np.ones_like(values)], axis=2)
    extended = np.hstack([values, np.ones((len(values), 1))])
    return np.repeat(extended[:, None], values.shape[1], axis=1)


def naive_hessian(rows, parameters, kind):
    features = features_of(rows, kind)
    probs = softmax(np.einsum("nkm,km->nk", features, parameters))
    weights = np.ones(len(probs)) if rows.weights is None else rows.weights
    hessian = 0.0
    for x, p, w in zip(features, probs, weights, strict=True):
        inner = np.diag(p) - np.outer(p, p)
        blocks = inner[:, None, :, None] * x[:, :, None, None] * x[None, None]
        hessian = hessian + w * blocks
    return hessian.reshape(parameters.size, -1) / weights.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_small_matrix_has_the_whole_hessian(monkeypatch, weighted):
    monkeypatch.setattr(regression, "CURVATURE_ROWS", 10_000)
    rows = rows_of(100, weighted=weighted)
    parameters = identity_of("matrix") * 0.7
    penalty = np.full(parameters.shape, 0.3)
    solve = regression.measure_curvature(rows, parameters)(penalty)
    dense = naive_hessian(rows, parameters, "matrix")
    dense += 0.3 * np.eye(len(dense))
    gradient = np.random.default_rng(2).normal(size=parameters.shape)
    expected = np.linalg.solve(dense, gradient.ravel())
    # The ridge changes the sixth digit.
    np.testing.assert_allclose(solve(gradient).ravel(), expected, rtol=1e-4)


def test_a_vector_has_blocks_of_two():
    rows = rows_of(100, weighted=True)
    parameters = identity_of("vector")
    penalty = np.random.default_rng(3).uniform(0.1, 1.0, size=(K, 2))
    solve = regression.measure_curvature(rows, parameters)(penalty)
    dense = naive_hessian(rows, parameters, "vector").reshape(K, 2, K, 2)
    gradient = np.random.default_rng(2).normal(size=(K, 2))
    for k in range(K):
        block = dense[k, :, k] + np.diag(penalty[k])
        expected = np.linalg.solve(block, gradient[k])
        np.testing.assert_allclose(solve(gradient)[k], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("usual", "diagonal"), [(0.0, 0.0), (0.4, 0.0), (0.4, 0.05), (0.4, 0.4)]
)
def test_a_large_matrix_has_one_covariance_and_a_mean_per_class(
    usual, diagonal
):
    num_classes = 12
    rows = rows_of(2000, num_classes)
    parameters = identity_of("matrix", num_classes)
    probs = softmax(rows.values)
    weight = probs * (1 - probs) / len(probs)
    extended = np.hstack([rows.values, np.ones((len(probs), 1))])
    mass = weight.sum(axis=0)
    means = weight.T @ extended / mass[:, None]
    within = sum(
        (w[:, None] * (extended - mean)).T @ (extended - mean)
        for w, mean in zip(weight.T, means, strict=True)
    )
    within /= mass.sum()
    penalty = np.full(parameters.shape, usual)
    np.fill_diagonal(penalty, diagonal)
    penalty[:, -1] = 0.7 * usual

    first, second = regression._classes(
        rows.values.T, probs.T, np.ones(len(probs))
    )
    moments = first / len(probs), second / len(probs)
    solve = regression._with_classes(*moments, penalty)
    gradient = np.random.default_rng(2).normal(size=parameters.shape)
    ridge = 1e-6 * np.trace(moments[1]) / first.size + 1e-12
    found = solve(gradient)
    for k in range(num_classes):
        block = mass[k] * (within + np.outer(means[k], means[k]))
        block += np.diag(penalty[k] + ridge)
        expected = np.linalg.solve(block, gradient[k])
        # Without a penalty, the ridge alone makes the block invertible.
        rtol = 1e-8 if usual else 1e-3
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found[k], expected, atol=rtol * scale)
    assert np.vdot(gradient, found) > 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_fit_finds_the_optimum_of_scipy(monkeypatch, kind, few, weighted):
    monkeypatch.setattr(regression, "FEW_PARAMETERS", few)
    rows = rows_of(weighted=weighted)
    centre = identity_of(kind)
    strength = np.random.default_rng(4).uniform(0.001, 0.1, size=centre.shape)

    def objective(flat):
        parameters = flat.reshape(centre.shape)
        value, gradient = regression.value_and_gradient(rows, parameters)
        change = parameters - centre
        value += np.sum(strength * change**2)
        return value, (gradient + 2 * strength * change).ravel()

    expected = optimize.minimize(
        objective, centre.ravel(), jac=True, method="BFGS", tol=1e-10
    )
    found = regression.fit(rows, centre, centre, strength, max_iterations=200)
    assert objective(found.ravel())[0] <= expected.fun + 1e-10
    # Seen 5e-6; the parameters are about 0.5.
    np.testing.assert_allclose(found.ravel(), expected.x, atol=5e-5)


def test_the_gradient_is_that_of_finite_differences():
    rows = rows_of(weighted=True)
    for kind in ("vector", "matrix"):
        parameters = 0.8 * identity_of(kind) + 0.05
        error = optimize.check_grad(
            lambda flat, like=parameters: regression.value_and_gradient(
                rows, flat.reshape(like.shape)
            )[0],
            lambda flat, like=parameters: regression.value_and_gradient(
                rows, flat.reshape(like.shape)
            )[1].ravel(),
            parameters.ravel(),
        )
        # Seen 2e-7, of a gradient of about 1.
        assert error < 2e-6


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_large_products_have_the_same_gradient(monkeypatch, kind):
    rows = rows_of(weighted=True)
    parameters = 0.8 * identity_of(kind) + 0.05
    value, gradient = regression.value_and_gradient(rows, parameters)
    # Several blocks, one after the other.
    monkeypatch.setattr(regression, "LARGE_PRODUCT", 0)
    monkeypatch.setattr(data, "MATRIX_BLOCK_BYTES", 1000)
    assert regression.is_large(parameters)
    other, other_gradient = regression.value_and_gradient(rows, parameters)
    assert other == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other_gradient, gradient, rtol=1e-9, atol=1e-12)


def test_minimise_solves_a_quadratic_in_one_step():
    matrix = np.diag([1.0, 100.0, 1e4])
    wanted = np.array([3.0, -1.0, 2.0])
    calls = []

    def objective(point):
        calls.append(point)
        gradient = matrix @ (point - wanted)
        return (point - wanted) @ gradient / 2, gradient

    inverse = np.linalg.inv(matrix)
    found, left = regression.minimise(
        objective, np.zeros(3), lambda g: inverse @ g, 10, 1e-12
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert left is None
    assert len(calls) == 2


def test_minimise_learns_what_the_first_curvature_lacks():
    generator = np.random.default_rng(0)
    factor = generator.normal(size=(30, 6))

    def objective(point):
        # A convex function that is not quadratic.
        outputs = factor @ point - 1.0
        value = np.sum(np.logaddexp(0, outputs)) + point @ point / 2
        slope = 1 / (1 + np.exp(-outputs))
        return value, factor.T @ slope + point

    found, left = regression.minimise(
        objective, np.ones(6), lambda g: g, 200, 1e-13
    )
    assert left is None
    np.testing.assert_allclose(objective(found)[1], 0, atol=1e-5)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e7])
def test_minimise_recovers_from_a_wrong_curvature(factor):
    def objective(point):
        root = np.sqrt(1 + point @ point)
        return root, point / root

    found, left = regression.minimise(
        objective, np.array([3.0, -1.0]), lambda g: factor * g, 100, 1e-13
    )
    assert left is None
    np.testing.assert_allclose(found, 0, atol=1e-5)


def test_minimise_says_what_is_left():
    def objective(point):
        return point @ point / 2, point

    _, left = regression.minimise(
        objective, np.ones(3), lambda g: 0.1 * g, 1, 1e-12
    )
    assert left == pytest.approx(0.15)

    def broken(point):
        return (1.0 if not point.any() else np.nan), np.ones(3)

    found, left = regression.minimise(
        broken, np.zeros(3), lambda g: g, 10, 1e-12
    )
    assert not found.any()
    assert left == pytest.approx(1.5)


def test_too_few_iterations_warn():
    rows = rows_of()
    centre = identity_of("matrix")
    strength = np.full(centre.shape, 1e-4)
    with pytest.warns(ConvergenceWarning, match="in 1 iterations"):
        regression.fit(rows, centre, centre, strength, max_iterations=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_leaving_a_row_out_is_a_fit_without_it(weighted):
    rows = rows_of(60, weighted=weighted)
    centre = identity_of("vector")
    weights = np.ones(60) if rows.weights is None else rows.weights
    strength = np.full((K, 2), 0.05)
    options = {"max_iterations": 200}
    whole = regression.fit(rows, centre, centre, strength, **options)
    curvature = regression.measure_curvature(rows, whole)
    leverage = curvature.leverage(2 * strength)
    outputs = regression.apply(whole, rows.values)
    inside = regression.losses_of(outputs.copy(), rows.labels)
    regression.leave_out(
        outputs, leverage, rows.values, rows.labels, rows.weights
    )
    ours = regression.losses_of(outputs, rows.labels)
    refitted = np.empty(60)
    for i in range(60):
        others = np.arange(60) != i
        left = data.Rows(
            rows.values[others],
            rows.labels[others],
            None if rows.weights is None else weights[others],
        )
        # The penalty against the sum of the losses stays the same.
        stronger = strength * weights.sum() / weights[others].sum()
        parameters = regression.fit(left, whole, centre, stronger, **options)
        refitted[i] = regression.losses_of(
            regression.apply(parameters, rows.values[i : i + 1]),
            rows.labels[i : i + 1],
        )[0]
    expected = refitted - inside
    # The curvature between classes is left out, which makes the differences
    # larger by up to 1 / (1 - 1 / K).
    assert np.corrcoef(ours - inside, expected)[0, 1] > 0.97
    ratio = np.sum(ours - inside) / np.sum(expected)
    assert 0.9 < ratio < 4 / 3


def test_blas_keeps_its_number_of_threads():
    def threads():
        return [each["num_threads"] for each in regression._blas().info()]

    before = threads()
    with regression.blas_threads(identity_of("vector")):
        assert set(threads()) == {1}
    assert threads() == before
    with regression.blas_threads(np.zeros((1000, 1001))):
        assert threads() == before
    # Two fits at once, of which the first one ends first.
    first = regression.blas_threads(identity_of("vector"))
    second = regression.blas_threads(identity_of("matrix"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before
