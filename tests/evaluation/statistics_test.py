import numpy as np
import pytest

from caltrain_tf import evaluation


def rows_of(values, severity=1, metric="ece"):
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


def test_masson_loftus_is_the_interaction_of_an_analysis_of_variance():
    values = np.random.default_rng(0).normal(size=(15, 3))
    values += 10 * np.random.default_rng(1).normal(size=(15, 1))
    n, k = values.shape
    # Sums of squares: total = subjects + conditions + interaction.
    total = ((values - values.mean()) ** 2).sum()
    subjects = k * ((values.mean(axis=1) - values.mean()) ** 2).sum()
    conditions = n * ((values.mean(axis=0) - values.mean()) ** 2).sum()
    mean_square = (total - subjects - conditions) / ((n - 1) * (k - 1))
    error = evaluation.masson_loftus_error(values)
    assert error == pytest.approx(np.sqrt(mean_square / n))
    assert error < evaluation.standard_error(values[:, 0]) / 5


def test_two_conditions_have_the_error_of_a_paired_test():
    values = np.random.default_rng(0).normal(size=(8, 2))
    paired = evaluation.standard_error(values[:, 0] - values[:, 1])
    error = evaluation.masson_loftus_error(values)
    assert error == pytest.approx(paired / np.sqrt(2))


def test_means_by_severity():
    values = np.random.default_rng(0).random((4, 3))
    rows = rows_of(values) + rows_of(values[:1], severity=0)
    rows += rows_of(values, metric="nll")
    means = evaluation.means_by_severity(rows)
    assert [row["severity"] for row in means] == [0] * 3 + [1] * 3
    assert [row["count"] for row in means] == [1] * 3 + [4] * 3
    np.testing.assert_allclose([row["mean"] for row in means[:3]], values[0])
    np.testing.assert_allclose(
        [row["mean"] for row in means[3:]], values.mean(axis=0)
    )
    error = evaluation.masson_loftus_error(values)
    assert all(row["error"] == error for row in means[3:])
    assert all(np.isnan(row["error"]) for row in means[:3])


def test_runs_are_compared_over_seeds():
    rng = np.random.default_rng(0)
    seeds = [rng.random((4, 2)) for _ in range(3)]
    runs = [("nll", rows_of(values)) for values in seeds[:2]]
    runs.append(("focal", rows_of(seeds[2])))
    rows = evaluation.compare_runs(runs, "ece", "calibrator1")
    by_name = {row["objective"]: row for row in rows}
    means = [values[:, 1].mean() for values in seeds]
    assert by_name["nll"]["mean"] == pytest.approx(np.mean(means[:2]))
    assert by_name["nll"]["count"] == 2
    expected = abs(means[0] - means[1]) / 2
    assert by_name["nll"]["error"] == pytest.approx(expected)
    assert by_name["focal"]["mean"] == pytest.approx(means[2])
    assert np.isnan(by_name["focal"]["error"])


def test_the_order_of_rows_does_not_matter():
    values = np.random.default_rng(0).random((4, 3))
    rows = rows_of(values)
    expected = evaluation.means_by_severity(rows)
    by_name = sorted(rows[3:], key=lambda row: row["value"])
    means = evaluation.means_by_severity(rows[:3] + by_name)
    for row, other in zip(means, expected, strict=True):
        assert row["calibrator"] == other["calibrator"]
        assert row["mean"] == pytest.approx(other["mean"])
        assert row["error"] == pytest.approx(other["error"])


def test_calibrators_of_other_corruptions_are_an_error():
    rows = rows_of(np.ones((3, 2)))
    with pytest.raises(ValueError, match="'calibrator0'.*for 'calibrator1'"):
        evaluation.means_by_severity(rows[:-1])
    # As many, but others.
    rows[-1]["corruption"] = "corruption7"
    with pytest.raises(ValueError, match="severity 1.*'corruption7'"):
        evaluation.means_by_severity(rows)
    with pytest.raises(ValueError, match="two of corruption='corruption0'"):
        evaluation.means_by_severity(2 * rows_of(np.ones((3, 2))))


def test_runs_of_other_sets_are_not_compared():
    rows = rows_of(np.ones((3, 2)))
    other = [{**row, "dataset": "cifar100"} for row in rows]
    message = "data set. Received: 'nll' with cifar10 .*'focal'.*cifar100"
    with pytest.raises(ValueError, match=message):
        evaluation.compare_runs([("nll", rows), ("focal", other)])
    for other, message in (
        (rows_of(np.ones((2, 2))), "with corruption2 1 that.*has nothing"),
        (rows_of(np.ones((3, 2)), severity=2), "corruption0 2, corruption1 2"),
    ):
        with pytest.raises(ValueError, match=f"severities.*{message}"):
            evaluation.compare_runs([("nll", rows), ("focal", other)])
    with pytest.raises(ValueError, match="`runs` must hold"):
        evaluation.compare_runs([])


def test_bad_input_is_an_error():
    for values in ([1.0, 2.0], [[1.0, 2.0]], [[1.0], [2.0]]):
        with pytest.raises(ValueError, match="`values` must be.*shape"):
            evaluation.masson_loftus_error(values)
    with pytest.raises(ValueError, match="metric='brier'"):
        evaluation.means_by_severity(rows_of(np.ones((2, 2))), "brier")
