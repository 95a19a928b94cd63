import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.posthoc.soft_binned_error import SoftBinnedError
from tests.posthoc.data import calibrated
from tests.posthoc.data import soft_binned_error
from tests.posthoc.data import softmax


@pytest.mark.parametrize("binning", ["bin", "label"])
@pytest.mark.parametrize("num_bins", [1, 2, 15])
@pytest.mark.parametrize("temperature", [1e-5, 1e-3, 0.01, 1.0])
def test_equals_the_formula_and_the_loss(binning, num_bins, temperature):
    logits, labels = calibrated(300, 4)
    probs = softmax(logits)
    found = SoftBinnedError(num_bins, temperature, binning)(
        probs.max(axis=1), probs.argmax(axis=1) == labels
    )
    naive = soft_binned_error(probs, labels, binning, temperature, num_bins)
    loss = ct.losses.sb_ece(
        labels,
        probs,
        num_bins=num_bins,
        temperature=temperature,
        binning=binning,
    )
    assert found == pytest.approx(naive, rel=1e-9)
    assert found == pytest.approx(float(loss), rel=1e-2, abs=1e-5)


def test_saturated_confidences_and_empty_bins():
    error = SoftBinnedError(15, 1e-4, "bin")
    assert error(np.ones(5), np.ones(5, bool)) == pytest.approx(0.0)
    assert error(np.ones(5), np.zeros(5, bool)) == pytest.approx(1.0)
