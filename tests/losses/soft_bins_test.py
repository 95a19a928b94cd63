import numpy as np
import pytest

from caltrain_tf.losses import soft_bins


def test_memberships_sum_to_1_and_peak_at_the_nearest_centre():
    values = np.linspace(0, 1, 101, dtype="float32")
    u = np.asarray(soft_bins.soft_membership(values, 10, 0.01))
    assert u.shape == (101, 10)
    np.testing.assert_allclose(u.sum(axis=1), 1, rtol=3e-6)
    centres = (np.arange(10) + 0.5) / 10
    inside = np.abs(values * 10 - np.round(values * 10)) > 0.01
    nearest = np.abs(values[:, None] - centres).argmin(axis=1)
    assert (u.argmax(axis=1) == nearest)[inside].all()


def test_a_low_temperature_makes_bins_hard():
    values = np.array([0.05, 0.21, 0.99], "float32")
    u = soft_bins.soft_membership(values, 5, 1e-6)
    np.testing.assert_allclose(u, np.eye(5)[[0, 1, 4]], atol=1e-6)


def test_bins_may_begin_at_chance():
    u = soft_bins.soft_membership(np.array([0.55], "float32"), 5, 1e-6, 0.5)
    np.testing.assert_allclose(u, np.eye(5)[[0]], atol=1e-6)


@pytest.mark.parametrize("norm", [20.0, 100.0, 300.0])
def test_high_norms_do_not_underflow(norm):
    predicted = np.full((4, 1), 0.5, "float32")
    outcome = np.array([[1], [0], [1], [1]], "float32")
    mean, scale = soft_bins.binned_error(
        predicted, outcome, np.ones(4, "float32"), (1, 0.01, 0.0), norm, False
    )
    # One bin: the gap itself, whatever the norm.
    np.testing.assert_allclose(
        soft_bins.finish(mean, scale, norm, root=True), 0.25, rtol=1e-6
    )


def test_nan_does_not_look_like_perfection():
    assert np.isnan(soft_bins.finish(np.float32("nan"), 1.0, 2, root=True))
    assert soft_bins.finish(np.float32(0), 1.0, 2, root=True) == 0
