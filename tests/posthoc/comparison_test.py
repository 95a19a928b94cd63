import pytest

import caltrain_tf as ct
from tests.posthoc.data import calibrated

SCALERS = {
    "ts": ct.posthoc.TemperatureScaling(),
    "ts_sb_ece": ct.posthoc.TemperatureScaling("sb_ece"),
}


def test_says_plainly_that_nothing_helps():
    result = ct.posthoc.compare(*calibrated(2000, 4), SCALERS)
    assert not result.better
    assert "None is better than doing nothing" in str(result)


def test_finds_what_helps_and_by_how_much():
    logits, labels = calibrated(2000, 4)
    result = ct.posthoc.compare(3 * logits, labels, SCALERS)
    assert result.better == {k: ["nll", "ece"] for k in SCALERS}
    assert list(result.scores) == ["none", "ts", "ts_sb_ece"]
    lines = str(result).splitlines()
    assert len(lines) == 5 and lines[2].count("*") == 2
    assert "Better than doing nothing" in lines[-1]
    for scores in result.scores.values():
        for score in scores.values():
            assert score.interval[0] <= score.value <= score.interval[1]


def test_doing_nothing_has_the_values_of_the_metrics():
    logits, labels = calibrated(300, 4)
    scores = ct.posthoc.compare(logits, labels, SCALERS).scores["none"]
    options = {"from_logits": True}
    for name, metric in (
        ("nll", ct.metrics.negative_log_likelihood),
        ("brier", ct.metrics.brier_score),
        ("ece", ct.metrics.calibration_error),
        ("accuracy", ct.metrics.accuracy),
    ):
        expected = metric(logits, labels, **options)
        assert scores[name].value == pytest.approx(expected, rel=1e-9)
        assert scores[name].difference == (0.0, 0.0)


def test_predictions_are_out_of_fold():
    # So many parameters fit any labels that they have seen.
    logits, labels = calibrated(100, 10)
    matrix = ct.posthoc.MatrixScaling(penalty=0.0, max_iterations=30)
    scores = ct.posthoc.compare(logits, labels, {"matrix": matrix}).scores
    assert scores["matrix"]["nll"].value > scores["none"]["nll"].value
    # The user's own stays as it was.
    assert not hasattr(matrix, "scale_")


def test_default_calibrators_and_lists():
    logits, labels = calibrated(150, 3)
    names = ct.posthoc.compare(logits, labels, cv=2, num_samples=10).scores
    assert list(names)[1:] == [
        "ts",
        "ts_sb_ece",
        "ensemble",
        "vector",
        "matrix",
        "dirichlet",
    ]
    listed = ct.posthoc.compare(logits, labels, [SCALERS["ts"]]).scores
    assert list(listed) == ["none", repr(SCALERS["ts"])]
