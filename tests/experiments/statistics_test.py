import numpy as np
import pandas as pd
import pytest
from scipy import stats

from caltrain_tf.experiments import config, figures, statistics, tables
from tests.experiments.rows import run

NAN = float("nan")


def test_masson_loftus_is_the_interaction_of_an_analysis_of_variance():
    values = np.random.default_rng(0).normal(size=(15, 3))
    values += 10 * np.random.default_rng(1).normal(size=(15, 1))
    n, k = values.shape
    # Sums of squares: total = subjects + conditions + interaction.
    total = ((values - values.mean()) ** 2).sum()
    subjects = k * ((values.mean(axis=1) - values.mean()) ** 2).sum()
    conditions = n * ((values.mean(axis=0) - values.mean()) ** 2).sum()
    mean_square = (total - subjects - conditions) / ((n - 1) * (k - 1))
    error = statistics.masson_loftus_error(values)
    assert error == pytest.approx(np.sqrt(mean_square / n))
    assert error < stats.sem(values[:, 0]) / 5


def holm_by_steps(p_values):
    """Smallest first; each times the number of those not yet taken."""
    result, largest = {}, 0
    ordered = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for step, index in enumerate(ordered):
        largest = max(largest, p_values[index] * (len(p_values) - step))
        result[index] = min(1, largest)
    return [result[index] for index in range(len(p_values))]


def test_holm():
    rng = np.random.default_rng(0)
    for size in (1, 2, 7):
        p_values = rng.random(size) ** 3
        np.testing.assert_allclose(
            statistics.holm(p_values), holm_by_steps(list(p_values))
        )
    # A test that could not be made does not count.
    corrected = statistics.holm([0.01, np.nan, 0.04])
    np.testing.assert_allclose(corrected, [0.02, np.nan, 0.04])
    assert statistics.holm([]).shape == (0,)


def runs_of(values, setting="s"):
    """A frame of runs: objective -> (accuracies, ECEs) over seeds."""
    return pd.DataFrame(
        [
            run(name, seed, setting, accuracy=accuracy, ece=ece)
            for name, pairs in values.items()
            for seed, (accuracy, ece) in enumerate(zip(*pairs, strict=True))
        ]
    )


def test_means_errors_and_counts():
    results = runs_of({"nll": ((0.9, 0.92), (0.05, 0.07))})
    results.loc[2] = pd.Series(run("nll", 2, accuracy=0.91, ece=NAN))
    mean, error, count, best, competes = statistics.summarize(results, ["ece"])
    assert mean.loc["nll", "ece"] == pytest.approx(0.06)
    assert error.loc["nll", "ece"] == pytest.approx(0.01)
    assert count.loc["nll"].to_dict() == {"accuracy": 3, "ece": 2}
    # One objective is the best of nothing.
    assert not best.to_numpy().any() and competes.all()


def test_the_best_gives_up_less_than_one_percent():
    values = {
        "nll": ((0.9, 0.9), (0.05, 0.05)),
        "nll+mmce": ((0.891, 0.891), (0.03, 0.03)),
        "nll+s_avuc": ((0.89, 0.89), (0.01, 0.01)),
        # More accurate, but not a primary loss alone.
        "focal+sb_ece": ((0.95, 0.95), (0.04, 0.04)),
    }
    summary = statistics.summarize(runs_of(values), ["ece"])
    assert summary.competes.tolist() == [True, True, False, True]
    assert summary.best["ece"].tolist() == [False, True, False, False]
    assert summary.best["accuracy"].tolist() == [False, False, False, True]
    # Without a primary loss alone, the most accurate is the reference.
    del values["nll"]
    competes = statistics.summarize(runs_of(values), ["ece"]).competes
    assert competes.tolist() == [False, False, True]


def test_nothing_is_best_where_accuracies_are_too_uncertain():
    values = {
        "nll": ((0.40, 0.52), (0.4, 0.3)),
        "nll+mmce": ((0.45, 0.46), (0.2, 0.1)),
    }
    summary = statistics.summarize(runs_of(values), ["ece"])
    assert summary.competes is None and not summary.best.to_numpy().any()
    # A standard error of 2% decides nothing about a loss of 20%...
    values = {
        "nll": ((0.9, 0.902), (0.05, 0.05)),
        "mse": ((0.68, 0.72), (0.01, 0.01)),
    }
    summary = statistics.summarize(runs_of(values), ["ece"])
    assert summary.competes.tolist() == [True, False]
    # ... but of a loss of 2% it does.
    values["mse"] = ((0.86, 0.9), (0.01, 0.01))
    assert statistics.summarize(runs_of(values), ["ece"]).competes is None


def test_shift_is_over_the_sets_that_all_runs_have():
    rows = shift_rows()
    means = statistics.shift_by_objective(rows).set_index(
        ["objective", "severity"]
    )
    # The runs have 0.12 and 0.22 at severity 1.
    nll = means.loc["nll", 1]
    assert nll[["mean", "error", "count"]].tolist() == pytest.approx(
        [0.17, 0.05, 2]
    )
    assert set(means["corruptions"]) == {2}
    assert list(means.index.get_level_values(0).unique()) == ["nll", "focal"]
    fewer = rows[
        (rows["objective"] != "focal") | (rows["corruption"] != "snow")
    ]
    means = statistics.shift_by_objective(fewer)
    assert set(means["corruptions"]) == {1}
    assert means["mean"][1] == pytest.approx(0.16)


def test_calibrators_under_shift_have_errors_within_corruptions():
    rows = shift_rows()
    rng = np.random.default_rng(0)
    scaled = rows.assign(calibrator="ts", value=rng.random(len(rows)))
    here = pd.concat([rows, scaled]).query("objective == 'nll'")
    means = statistics.shift_by_calibrator(here).set_index(
        ["severity", "calibrator"]
    )
    at = here[here["severity"] == 5]
    table = [
        [
            at[(at["corruption"] == name) & (at["calibrator"] == scaling)][
                "value"
            ].mean()
            for scaling in ("none", "ts")
        ]
        for name in ("fog", "snow")
    ]
    expected = statistics.masson_loftus_error(table)
    assert means.loc[5, "error"].tolist() == pytest.approx([expected] * 2)
    assert means.loc[5, "mean"].tolist() == pytest.approx(np.mean(table, 0))
    assert means.loc[0, "error"].isna().all()


def shift_rows():
    """Two runs of NLL and one of focal, on two corruptions."""
    return pd.DataFrame(
        [
            {
                **{"setting": "s", "objective": objective, "seed": seed},
                **{"dataset": "d", "corruption": corruption},
                **{"severity": severity, "calibrator": "none"},
                **{"metric": "ece"},
                "value": base + 0.01 * severity + 0.02 * (corruption == "snow"),
            }
            for objective, seed, base in (
                *(("nll", 0, 0.1), ("nll", 1, 0.2), ("focal", 0, 0.0)),
            )
            for corruption, severity in (
                *(("none", 0), ("fog", 1), ("snow", 1)),
                *(("fog", 5), ("snow", 5)),
            )
        ]
    )


def best(*pairs):
    rows = [
        {"id": index, "accuracy": accuracy, "ece": ece}
        for index, (accuracy, ece) in enumerate(pairs)
    ]
    return statistics.best_within_accuracy(rows)["id"]


def test_the_rule_of_the_paper():
    for accuracy in np.arange(0.01, 1.005, 0.01):
        # 0.91 - 0.9 is more than 0.01 in floating point, 0.03 - 0.02 less.
        assert best((accuracy, 0.2), (accuracy - 0.01, 0.1)) == 0
        assert best((accuracy, 0.2), (accuracy - 0.01 + 1e-6, 0.1)) == 1
    # The lowest error, then accuracy, then order.
    assert best((0.95, 0.03), (0.945, 0.01), (0.9, 0.001)) == 1
    assert best((0.94, 0.01), (0.945, 0.01), (0.945, 0.01)) == 1
    # What is not finite counts for nothing.
    assert best((0.95, 0.1), (NAN, 0.0), (0.99, NAN), (0.8, 0.01)) == 0


def paper_rows():
    """Ten runs of every objective with the means and errors of the paper."""
    values = np.arange(10) - 4.5
    values /= values.std(ddof=1)
    return [
        run(
            row.objective,
            seed,
            row.data,
            ece=(row.ece + row.ece_error * np.sqrt(10) * value) / 100,
            ece_ts=(row.ece_ts + row.ece_ts_error * np.sqrt(10) * value) / 100,
        )
        for row in tables.read_paper().itertuples()
        for seed, value in enumerate(values)
    ]


def test_effects_are_against_the_same_primary_in_the_same_setting():
    rng = np.random.default_rng(0)
    values = {
        (setting, name): rng.random(3)
        for setting in ("a", "b")
        for name in (
            *("nll", "focal", "nll+mmce"),
            *("nll+mmce-interleaved", "focal+s_avuc", "mse+s_avuc"),
        )
    }
    rows = [
        run(name, seed, setting, ece=value)
        for (setting, name), column in values.items()
        for seed, value in enumerate(column)
    ]
    rows.append(run("nll+esd", 0, "a", ece=0.1))
    effects = statistics.effect_sizes(pd.DataFrame(rows))
    # MSE alone was not run, and ESD once.
    assert len(effects) == 6 and set(effects["metric"]) == {"ece"}
    for row in effects.itertuples():
        name = f"{row.primary}+{row.secondary}"
        name += "-interleaved" * row.interleaved
        expected = statistics.cohens_d(
            values[row.setting, name], values[row.setting, row.primary]
        )
        assert row.d == pytest.approx(expected)


def test_gains_are_against_the_same_seed_of_the_primary_loss():
    rows = [
        run("nll", 0, ece=0.05, train_confidence=0.99, train_accuracy=1.0),
        run("nll", 1, ece=0.07, train_confidence=0.98, train_accuracy=1.0),
        run("nll+mmce", 1, ece=0.03, train_confidence=0.5, train_accuracy=1.0),
        run("nll+mmce", 2, ece=0.03, train_confidence=0.5, train_accuracy=1.0),
    ]
    gains = statistics.gains(pd.DataFrame(rows))
    assert gains["seed"].tolist() == [1]
    np.testing.assert_allclose(
        gains[["training_gap", "change"]], [[-0.02, -0.04]]
    )
    (line,) = figures.gains_by_training_gap(gains).axes[0].get_lines()[:1]
    np.testing.assert_allclose(line.get_xydata(), [[-2.0, -4.0]])


def test_what_follows_from_the_papers_own_table():
    paper = tables.read_paper()
    for data, rows in paper.groupby("data"):
        expected = config.expand_objectives(["paper"], data)
        assert sorted(rows["objective"]) == sorted(expected)
    results = pd.DataFrame(paper_rows())
    means = {
        metric: statistics.effect_sizes(results, metric)
        .groupby("secondary")["d"]
        .mean()
        .sort_values(ascending=False)
        for metric in ("ece", "ece_ts")
    }
    assert list(means["ece"].index[:3]) == ["s_avuc", "mmce", "sb_ece"]
    # "d-values obtained here are much larger" than 2.0.
    assert means["ece"].iloc[0] == pytest.approx(6.78, abs=0.01)
    # After temperature scaling, S-AvUC has the smallest effect of the three.
    assert means["ece_ts"][["s_avuc", "mmce", "sb_ece"]].tolist() == (
        pytest.approx([1.07, 2.58, 2.06], abs=0.005)
    )
    assert len(paper) == 42
    assert (paper["ece_ts_sb_ece"] < paper["ece_ts"]).sum() == 34


def seeded_results():
    rng = np.random.default_rng(0)
    means = {
        "nll": 0.2,
        "focal": 0.15,
        "nll+mmce": 0.1,
        "nll+s_avuc-interleaved": 0.12,
        "focal+s_avuc": 0.05,
        "mse+sb_ece": 0.3,
    }
    return runs_of(
        {
            name: ([0.9] * 4, mean + 0.01 * rng.normal(size=4))
            for name, mean in means.items()
        }
    )


def test_paired_tests():
    pairs = {
        "nll+mmce": "nll",
        "nll+s_avuc-interleaved": "nll",
        "focal+s_avuc": "focal",
    }
    results = seeded_results()
    found = statistics.paired_tests(results)
    assert dict(zip(found["objective"], found["against"], strict=True)) == pairs
    values = {
        name: runs["ece"].to_list()
        for name, runs in results.groupby("objective")
    }
    for row in found.itertuples():
        pair = values[row.objective], values[row.against]
        test = stats.ttest_rel(*pair)
        assert row.p_value == pytest.approx(test.pvalue)
        assert row.difference == pytest.approx(np.subtract(*pair).mean())
        interval = test.confidence_interval(0.95)
        assert (row.low, row.high) == pytest.approx(tuple(interval))
    corrected = holm_by_steps(found["p_value"].to_list())
    np.testing.assert_allclose(found["p_holm"], corrected)


def test_only_common_seeds_are_paired():
    results = seeded_results()
    fewer = results[(results["objective"] != "nll") | (results["seed"] < 2)]
    tests = statistics.paired_tests(fewer).set_index("objective")["seeds"]
    assert tests["nll+mmce"] == 2 and tests["focal+s_avuc"] == 4
    one = results[(results["objective"] != "nll") | (results["seed"] < 1)]
    assert "nll+mmce" not in set(statistics.paired_tests(one)["objective"])
    assert statistics.paired_tests(results[results["seed"] == 0]).empty
