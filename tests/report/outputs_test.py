import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.report import outputs


def test_reliability_is_that_of_a_naive_loop(runs):
    splits = outputs.load_splits(runs / "nll" / "seed0")
    rows = outputs.reliability_rows(splits)
    assert len(rows) == 3 * 15
    calibrators = ct.evaluation.fit_calibrators(*splits["calibration"])
    logits, labels = splits["test"]
    temperatures = {"none": 1.0}
    for name, calibrator in calibrators.items():
        temperatures[name] = calibrator.temperature_
    for row in rows:
        scaled = logits.astype(float) / temperatures[row["calibrator"]]
        probs = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
        top, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
        inside = np.floor(top * 15).clip(0, 14) == row["bin"]
        assert row["count"] == inside.sum()
        if row["count"]:
            assert row["confidence"] == pytest.approx(top[inside].mean())
            assert row["accuracy"] == pytest.approx(correct[inside].mean())
        else:
            assert np.isnan([row["confidence"], row["accuracy"]]).all()


def test_dirichlet_only_where_asked_or_there(runs, tmp_path):
    plain = ct.report.collect(runs / "nll" / "seed0").results[0]
    assert "ece_dirichlet" not in plain
    asked = ct.report.collect(runs / "nll" / "seed0", dirichlet=True).results[0]
    splits = outputs.load_splits(runs / "nll" / "seed0")
    calibrator = ct.posthoc.DirichletCalibration().fit(*splits["calibration"])
    logits, labels = splits["test"]
    assert asked["ece_dirichlet"] == ct.metrics.calibration_error(
        calibrator.transform(logits), labels, from_logits=True
    )
    assert asked["accuracy"] == plain["accuracy"]
    assert 0 < asked["accuracy_dirichlet"] < 1
