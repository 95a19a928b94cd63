import pytest

import caltrain_tf as ct
from tests.metrics.cases import CASES
from tests.metrics.streaming.all_metrics_test import stream


@pytest.mark.parametrize(
    "options",
    [
        {"binning": "bin"},
        {"binning": "bin", "norm": 1},
        {"binning": "bin", "norm": 4, "root": False},
        # Powers of 100 would leave float32.
        {"binning": "bin", "norm": 100},
        {"binning": "label", "root": False},
        {"num_bins": 5, "temperature": 0.1},
        {"temperature": 1e-5},
    ],
)
def test_is_the_loss_of_all_examples(options):
    for case in ("calibrated_10", "saturated", "tied", "one_example"):
        probs, labels = CASES[case]
        value = stream(ct.metrics.SoftBinnedECE(**options), labels, probs)
        expected = float(ct.losses.sb_ece(labels, probs, **options))
        # Ten times the largest error seen; a bin more or less changes 1e-2.
        assert value == pytest.approx(expected, abs=2e-5), case


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": 1}, "norm=1"),
        ({"binning": "soft"}, "binning='soft'"),
        ({"temperature": 0}, "temperature=0"),
        ({"num_bins": 0}, "num_bins=0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=f"Received: {message}"):
        ct.metrics.SoftBinnedECE(**options)
