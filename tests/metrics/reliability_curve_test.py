import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.cases import CASES


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_equals_the_definition(case, binning):
    probs, labels = CASES[case]
    curve = metrics.reliability_curve(probs, labels, 10, binning)
    confidence, correct = naive.top(probs, labels)
    for b, rows in enumerate(naive.members(confidence, 10, binning)):
        assert curve.count[b] == len(rows)
        if rows:
            assert curve.accuracy[b] == pytest.approx(correct[rows].mean())
            assert curve.confidence[b] == pytest.approx(confidence[rows].mean())
        else:
            assert np.isnan(curve.accuracy[b]) and np.isnan(curve.confidence[b])


def test_unpacks():
    confidence, accuracy, count = metrics.reliability_curve(
        *CASES["calibrated_10"], num_bins=4
    )
    assert confidence.shape == accuracy.shape == count.shape == (4,)
    assert count.sum() == 800
    assert (np.diff(confidence) > 0).all()
