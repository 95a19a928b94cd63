import numpy as np
import pytest
from scipy.optimize import minimize

from caltrain_tf.posthoc import lbfgs


def test_finds_the_minimum_that_scipy_finds():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(50, 4))

    def value_and_gradient(x):
        powers = np.exp(points @ x)
        value = np.log(powers.sum()) + 0.5 * x @ x
        return value, points.T @ powers / powers.sum() + x

    found = lbfgs.minimize(
        value_and_gradient, np.ones(4), max_iterations=100, tolerance=1e-15
    )
    expected = minimize(value_and_gradient, np.ones(4), jac=True, tol=1e-12)
    np.testing.assert_allclose(found, expected.x, atol=1e-6)


@pytest.mark.parametrize("start", [0.0, 3.0])
def test_ends_where_rounding_hides_the_slope(start):
    # The value is coarse, the gradient is not.
    found = lbfgs.minimize(
        lambda x: (float(np.round((x @ x), 3)), 2 * x),
        np.full(2, start),
        max_iterations=100,
        tolerance=1e-9,
    )
    assert np.all(np.abs(found) < 0.1)
