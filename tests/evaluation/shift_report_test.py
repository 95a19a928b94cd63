import numpy as np
import pytest

from caltrain_tf import evaluation
from caltrain_tf.data.corruptions import NAMES

METRICS = ("accuracy", "nll", "brier", "ece")


def rows_of(dataset, names=NAMES, severities=range(1, 6)):
    rng = np.random.default_rng(0)
    sets = [("none", 0), *((name, s) for name in names for s in severities)]
    return [
        {
            "dataset": dataset,
            "corruption": corruption,
            "severity": severity,
            "calibrator": calibrator,
            "metric": metric,
            "value": float(rng.random()),
        }
        for corruption, severity in sets
        for calibrator in ("none", "ts", "ts_sb_ece")
        for metric in METRICS
    ]


def values_of(rows, metric, calibrator, clean):
    return [
        row["value"]
        for row in rows
        if (row["metric"], row["calibrator"]) == (metric, calibrator)
        and (row["severity"] == 0) == clean
    ]


def test_keys_are_those_of_robustness_metrics():
    # The four extra corruptions are not part of its reports.
    rows = rows_of("cifar10", (*NAMES, "spatter"))
    report = evaluation.robustness_report(rows)
    rows = [row for row in rows if row["corruption"] != "spatter"]
    for suffix, calibrator in (("", "none"), ("_ts", "ts")):
        (clean,) = values_of(rows, "ece", calibrator, True)
        assert report[f"cifar10/ece{suffix}"] == clean
        shifted = values_of(rows, "ece", calibrator, False)
        assert len(shifted) == 75
        key = f"cifar10_c/ece{suffix}"
        assert report[f"{key}/mean"] == pytest.approx(np.mean(shifted))
        assert report[f"{key}/std"] == pytest.approx(np.std(shifted))
        assert report[f"{key}/count"] == 75
    assert len(report) == 12 + 3 * 12


def test_imagenet_has_the_mean_corruption_error():
    rows = rows_of("imagenet")
    report = evaluation.robustness_report(rows)
    accuracy = {
        name: np.mean(
            values_of(
                [row for row in rows if row["corruption"] == name],
                "accuracy",
                "none",
                False,
            )
        )
        for name in NAMES
    }
    fog = (1 - accuracy["fog"]) / 0.819
    assert report["imagenet_c/fog/ce"] == pytest.approx(fog)
    ratios = [report[f"imagenet_c/{name}/ce"] for name in NAMES]
    assert report["imagenet_c/mce"] == pytest.approx(np.mean(ratios))
    (clean,) = values_of(rows, "accuracy", "none", True)
    relative = (clean - accuracy["snow"]) / (0.867 - 0.4348)
    key = "imagenet_c/snow/relative_ce"
    assert report[key] == pytest.approx(relative)
    some = evaluation.robustness_report(rows_of("imagenet", NAMES[:3]))
    assert "imagenet_c/mce" not in some


def test_the_table_has_a_column_a_severity():
    rows = rows_of("cifar10", severities=(1, 3))
    table = evaluation.severity_table(rows)
    first, *others = table.splitlines()
    assert first.split()[-5:] == ["clean", "severity", "1", "severity", "3"]
    assert len(others) == 1 + 3 * 3
    ece = next(line for line in others if line.startswith("ECE (%), TS-SB-ECE"))
    row = evaluation.means_by_severity(rows, "ece")[-1]
    text = f"{100 * row['mean']:.2f} ± {100 * row['error']:.2f}"
    assert ece.endswith(text)
