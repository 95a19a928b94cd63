import functools

import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.posthoc import base
from caltrain_tf.posthoc.compare import default_calibrators, holm
from tests.posthoc.data import calibrated

# Of the few examples of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*cross-validated NLL")

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
    assert result.better == {k: ["nll", "brier", "ece"] for k in SCALERS}
    assert list(result.scores) == ["none", "ts", "ts_sb_ece"]
    lines = str(result).splitlines()
    assert len(lines) == 5 and lines[2].count("*") == 3
    assert "Better than doing nothing" in lines[-1]
    for scores in result.scores.values():
        for metric in ("nll", "brier", "ece", "accuracy"):
            low, high = scores[metric].interval
            assert low <= scores[metric].value <= high
        assert scores["marginal_ece"].interval is None


def test_stars_are_corrected_for_the_number_of_tests():
    corrected = holm([0.01, 0.04, 0.03])
    np.testing.assert_allclose(corrected, [0.03, 0.06, 0.06])
    # A gain that three tests would call significant, and fifteen do not.
    logits, labels = calibrated(1500, 4)
    logits *= 1.3
    options = {"cv": 2, "num_samples": 100}
    alone = ct.posthoc.compare(logits, labels, {"ts": SCALERS["ts"]}, **options)
    names = [f"ts{i}" for i in range(5)]
    many = ct.posthoc.compare(
        logits, labels, dict.fromkeys(names, SCALERS["ts"]), **options
    )
    first, last = alone.scores["ts"]["nll"], many.scores["ts4"]["nll"]
    assert first.difference == last.difference
    assert last.p_value > first.p_value
    assert "nll" in alone.better["ts"]
    assert "nll" not in many.better.get("ts4", [])


def test_equal_examples_decide_nothing():
    # All resamples are equal, so that a difference has no standard error.
    result = ct.posthoc.compare([[3.0, 0.0]] * 4, [0] * 4, SCALERS, cv=2)
    assert not result.better and not result.harmful
    ts = result.scores["ts"]["nll"]
    assert ts.difference != 0 and ts.p_value == 1


def test_folds_have_every_class():
    # Round-robin classes: every fifth row would leave out two of ten classes.
    logits = 3 * np.random.default_rng(0).normal(size=(100, 10))
    labels = np.arange(100) % 10
    for _, fold in base.folds(labels, 5):
        np.testing.assert_array_equal(np.bincount(labels[fold]), [2] * 10)
    result = ct.posthoc.compare(logits, labels, {"ts": SCALERS["ts"]})
    assert result.scores["ts"]["nll"].value < result.scores["none"]["nll"].value


def test_other_shapes_are_the_two_dimensional_case():
    logits, labels = calibrated(300, 2)
    binary = logits[:, 1] - logits[:, 0]
    options = {"cv": 3, "num_samples": 10}
    flat = np.stack([0 * binary, binary], axis=1)
    expected = ct.posthoc.compare(flat, labels, SCALERS, **options)
    ignored = np.append(labels, [-1, -1]).reshape(2, 151)
    found = ct.posthoc.compare(
        np.append(binary, [np.nan, 0]).reshape(2, 151, 1),
        ignored,
        SCALERS,
        ignore_class=-1,
        sample_weight=np.full((2, 151), 7.0),
        **options,
    )
    for name, scores in expected.scores.items():
        assert found.scores[name]["nll"].value == pytest.approx(
            scores["nll"].value, rel=1e-8
        )


def test_doing_nothing_has_the_values_of_the_metrics():
    logits, labels = calibrated(300, 4)
    scores = ct.posthoc.compare(logits, labels, SCALERS).scores["none"]
    options = {"from_logits": True}
    for name, metric in (
        ("nll", ct.metrics.negative_log_likelihood),
        ("brier", ct.metrics.brier_score),
        ("ece", functools.partial(ct.metrics.calibration_error, debias=True)),
        ("marginal_ece", ct.metrics.marginal_calibration_error),
        ("accuracy", ct.metrics.accuracy),
    ):
        expected = metric(logits, labels, **options)
        assert scores[name].value == pytest.approx(expected, rel=1e-9)
        assert scores[name].difference == 0.0


@pytest.mark.filterwarnings("ignore:The fit did not converge")
def test_predictions_are_out_of_fold():
    # So many parameters fit any labels that they have seen.
    logits, labels = calibrated(100, 10)
    matrix = ct.posthoc.MatrixScaling(penalty=0.0)
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
        "ts_hb_ece",
        "ensemble",
        "platt",
        "beta",
        "isotonic",
        "vector",
        "structured_vector",
        "matrix",
        "structured_matrix",
        "dirichlet",
    ]
    kinds = {type(each) for each in default_calibrators(3).values()}
    automatic = {ct.posthoc.AutoCalibration}
    assert kinds == set(ct.posthoc.CALIBRATORS.values()) - automatic
    listed = ct.posthoc.compare(logits, labels, [SCALERS["ts"]]).scores
    assert list(listed) == ["none", repr(SCALERS["ts"])]


@pytest.mark.filterwarnings("ignore:The fit did not converge")
def test_harm_is_marked_and_the_best_can_be_used():
    logits, labels = calibrated(200, 10)
    calibrators = {
        "ts": SCALERS["ts"],
        "matrix": ct.posthoc.MatrixScaling(penalty=0.0),
    }
    result = ct.posthoc.compare(1.6 * logits, labels, calibrators)
    assert result.harmful == ["matrix"] and result.best == "ts"
    lines = str(result).splitlines()
    assert "!" in lines[3] and "!" not in lines[1] + lines[2]
    assert lines[-1].endswith("Harmful, a higher NLL (!): matrix.")
    assert repr(result) == str(result)
    assert result._repr_html_().count("<tr>") == 4
    frame = result.to_frame()
    assert list(frame.index) == ["none", "ts", "matrix"]
    assert frame["harmful"].tolist() == [False, False, True]
    assert frame.loc["ts", "nll"] == result.scores["ts"]["nll"].value
    expected = ct.posthoc.TemperatureScaling().fit(1.6 * logits, labels)
    assert repr(result.fit(1.6 * logits, labels)) == repr(expected)
    nothing = ct.posthoc.compare(logits, labels, SCALERS)
    assert nothing.best == "none"
    assert nothing.fit(logits, labels).temperature_ == 1.0


def test_few_calibrated_examples_are_rarely_called_miscalibrated():
    # 0.3% were seen in 1,200 draws; 5% are meant.
    better = 0
    for seed in range(40):
        result = ct.posthoc.compare(
            *calibrated(120, 3, seed), {"ts": SCALERS["ts"]}, num_samples=100
        )
        better += bool(result.better)
        for scores in result.scores.values():
            low, high = scores["ece"].interval
            assert low <= scores["ece"].value <= high
    assert better <= 4
