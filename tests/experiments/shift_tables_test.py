import numpy as np
import pandas as pd
import pytest

from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.experiments import shift_tables, statistics

METRICS = ("accuracy", "nll", "brier", "ece")


def severity_rows(values, severity=1, metric="ece"):
    """Rows of `(corruptions, calibrators)`."""
    return [
        {
            "dataset": "cifar10",
            "corruption": f"corruption{subject}",
            "severity": severity,
            "calibrator": f"calibrator{condition}",
            "metric": metric,
            "value": value,
        }
        for (subject, condition), value in np.ndenumerate(values)
    ]


def test_means_by_severity():
    values = np.random.default_rng(0).random((4, 3))
    rows = severity_rows(values) + severity_rows(values[:1], severity=0)
    rows += severity_rows(values, metric="nll")
    means = shift_tables.means_by_severity(rows).to_dict("records")
    assert [row["severity"] for row in means] == [0] * 3 + [1] * 3
    assert [row["count"] for row in means] == [1] * 3 + [4] * 3
    np.testing.assert_allclose([row["mean"] for row in means[:3]], values[0])
    np.testing.assert_allclose(
        [row["mean"] for row in means[3:]], values.mean(axis=0)
    )
    error = statistics.masson_loftus_error(values)
    assert all(row["error"] == error for row in means[3:])
    assert all(np.isnan(row["error"]) for row in means[:3])


def test_runs_are_compared_over_seeds():
    rng = np.random.default_rng(0)
    seeds = [rng.random((4, 2)) for _ in range(3)]
    runs = [("nll", severity_rows(values)) for values in seeds[:2]]
    runs.append(("focal", severity_rows(seeds[2])))
    rows = shift_tables.compare_runs(runs, "ece", "calibrator1")
    rows = rows.to_dict("records")
    by_name = {row["objective"]: row for row in rows}
    means = [values[:, 1].mean() for values in seeds]
    assert by_name["nll"]["mean"] == pytest.approx(np.mean(means[:2]))
    assert by_name["nll"]["count"] == 2
    expected = abs(means[0] - means[1]) / 2
    assert by_name["nll"]["error"] == pytest.approx(expected)
    assert by_name["focal"]["mean"] == pytest.approx(means[2])
    assert np.isnan(by_name["focal"]["error"])


def test_the_order_of_rows_does_not_matter():
    rows = severity_rows(np.random.default_rng(0).random((4, 3)))
    by_value = sorted(rows[3:], key=lambda row: row["value"])
    pd.testing.assert_frame_equal(
        shift_tables.means_by_severity(rows[:3] + by_value),
        shift_tables.means_by_severity(rows),
    )


def test_runs_of_other_sets_are_not_compared():
    rows = severity_rows(np.ones((3, 2)))
    for other, message in (
        ([{**row, "dataset": "cifar100"} for row in rows], "cifar100"),
        (severity_rows(np.ones((2, 2))), "only in 'nll'.*'corruption2', 1"),
        (severity_rows(np.ones((3, 2)), severity=2), "'corruption0', 2"),
    ):
        with pytest.raises(ValueError, match=message):
            shift_tables.compare_runs([("nll", rows), ("focal", other)])


def random_rows(dataset, names=NAMES, severities=range(1, 6)):
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
    rows = random_rows("cifar10", (*NAMES, "spatter"))
    report = shift_tables.robustness_report(rows)
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
    rows = random_rows("imagenet")
    report = shift_tables.robustness_report(rows)
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
    some = shift_tables.robustness_report(random_rows("imagenet", NAMES[:3]))
    assert "imagenet_c/mce" not in some
    # AlexNet's errors are those on the published images.
    made = shift_tables.robustness_report(rows, is_generated=True)
    assert "imagenet_c/mce" not in made and "imagenet_c/ece/mean" in made


def test_the_table_has_a_column_a_severity():
    rows = random_rows("cifar10", severities=(1, 3))
    table = shift_tables.severity_table(rows)
    first, *others = table.splitlines()
    assert first.split()[-5:] == ["clean", "severity", "1", "severity", "3"]
    assert len(others) == 1 + 3 * 3 + 3
    assert "all calibrators\nof a severity share it" in table
    ece = next(line for line in others if line.startswith("ECE (%), TS-SB-ECE"))
    row = shift_tables.means_by_severity(rows, "ece").iloc[-1]
    text = f"{100 * row['mean']:.2f} ± {100 * row['error']:.2f}"
    assert ece.endswith(text)
