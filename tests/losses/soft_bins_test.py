import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.losses import base, soft_bins
from tests.losses import naive
from tests.losses.cases import SECONDARY, batch, value_and_gradient


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
    for values, lower in (([0.05, 0.21, 0.99], 0.0), ([0.55, 0.65, 0.99], 0.5)):
        values = np.array(values, "float32")
        u = soft_bins.soft_membership(values, 5, 1e-6, lower)
        np.testing.assert_allclose(u, np.eye(5)[[0, 1, 4]], atol=1e-6)


@pytest.mark.parametrize("norm", [20.0, 300.0])
def test_high_norms_do_not_underflow(norm):
    labels, probs = [0, 1, 0, 0], [[0.5, 0.5]] * 4
    for function in (ct.losses.sb_ece, ct.losses.sb_marginal_ece):
        # One bin: the gap itself, whatever the norm.
        value = function(labels, probs, num_bins=1, norm=norm, binning="bin")
        np.testing.assert_allclose(value, 0.25, rtol=1e-5)


@pytest.mark.parametrize("binning", ["bin", "label"])
@pytest.mark.parametrize("name", ["sb_ece", "sb_marginal_ece"])
def test_one_bin_is_enough(name, binning):
    labels, logits = batch(9, 4)
    function, reference = SECONDARY[name]
    options = {"num_bins": 1, "binning": binning}
    value, gradient = value_and_gradient(
        function, labels, logits, True, **options
    )
    expected = reference(labels, naive.softmax(logits), **options)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("options", "jit_compile"),
    [({}, False), ({"binning": "label", "norm": 3}, True)],
)
def test_blocks_of_classes_change_nothing(options, jit_compile, monkeypatch):
    labels, logits = batch(40, 8)

    def value_and_gradient():
        @tf.function(jit_compile=jit_compile)
        def compute(logits):
            value = ct.losses.sb_marginal_ece(labels, logits, True, **options)
            return value, tf.gradients(value, logits)[0]

        return compute(tf.constant(logits))

    expected = value_and_gradient()
    # Three classes at a time, so that the last block has two.
    monkeypatch.setattr(soft_bins, "_BLOCK_BYTES", 3 * 4 * 40 * 15)
    for ours, reference in zip(value_and_gradient(), expected, strict=True):
        # The same sums in another order: 1e-7.
        np.testing.assert_allclose(
            ours, reference, rtol=2e-6, atol=2e-6 * np.abs(reference).max()
        )


def test_no_array_is_larger_than_64_mb():
    # 512 x 2,000 x 15 memberships are 61 MB, and there would be several.
    labels, logits = batch(512, 2000)

    @tf.function
    def gradient(logits):
        value = ct.losses.sb_marginal_ece(labels, logits, True)
        return tf.gradients(value, logits)[0]

    graph = gradient.get_concrete_function(tf.constant(logits)).graph
    largest = max(
        4 * np.prod(tensor.shape)
        for operation in graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape.is_fully_defined()
    )
    assert largest <= 2 * soft_bins._BLOCK_BYTES


def test_nan_does_not_look_like_perfection():
    for exponent in (1, 2, 3):
        assert np.isnan(base.root(tf.constant(np.nan), exponent))
        assert base.root(tf.constant(0.0), exponent) == 0
