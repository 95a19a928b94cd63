import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from caltrain_tf.experiments import statistics
from tests.experiments.rows import run

NAN = float("nan")
# ECE in percent and its standard error over 10 seeds, of the paper's table of
# all results: none, MMCE, AvUC, AvUC-GS, S-AvUC, SB-ECE.
SECONDARIES = ("", "mmce", "avuc", "avuc_gs", "s_avuc", "sb_ece")
PAPER = {
    ("cifar100", "nll"): (
        *((9.10, 0.139), (4.77, 0.121), (11.4, 0.175)),
        *((6.21, 0.084), (6.10, 0.095), (6.86, 0.839)),
    ),
    ("cifar100", "focal"): (
        *((4.66, 0.130), (5.07, 0.147), (5.68, 0.181)),
        *((3.38, 0.109), (1.57, 0.122), (2.30, 0.105)),
    ),
    ("cifar100", "mse"): (
        *((4.17, 0.122), (4.22, 0.085), (4.27, 0.067)),
        *((4.31, 0.114), (3.69, 0.122), (4.14, 0.100)),
    ),
    ("cifar10", "nll"): (
        *((5.59, 0.119), (1.55, 0.053), (5.27, 0.101)),
        *((4.94, 0.109), (5.87, 0.113), (5.84, 0.121)),
    ),
    ("cifar10", "focal"): (
        *((5.45, 0.079), (8.74, 0.059), (1.34, 0.084)),
        *((1.39, 0.081), (1.58, 0.146), (1.19, 0.088)),
    ),
    ("cifar10", "mse"): (
        *((6.58, 0.034), (2.82, 0.046), (3.64, 0.066)),
        *((5.44, 0.146), (3.40, 0.126), (4.37, 0.143)),
    ),
    ("imagenet", "nll"): (
        *((3.81, 0.043), (3.12, 0.025), (3.48, 0.041)),
        *((3.84, 0.030), (2.26, 0.055), (3.11, 0.039)),
    ),
}


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
    assert error < statistics.standard_error(values[:, 0]) / 5


def test_two_conditions_have_the_error_of_a_paired_test():
    values = np.random.default_rng(0).normal(size=(8, 2))
    paired = statistics.standard_error(values[:, 0] - values[:, 1])
    error = statistics.masson_loftus_error(values)
    assert error == pytest.approx(paired / np.sqrt(2))


def test_d_is_the_difference_over_the_pooled_deviation():
    rng = np.random.default_rng(0)
    treated, baseline = rng.normal(1, 2, 5), rng.normal(3, 1, 9)
    pooled = (4 * treated.var(ddof=1) + 8 * baseline.var(ddof=1)) / 12
    expected = (baseline.mean() - treated.mean()) / np.sqrt(pooled)
    d = statistics.cohens_d(treated, baseline)
    assert d == pytest.approx(expected) and d > 0
    assert statistics.cohens_d(baseline, treated) == pytest.approx(-d)
    # Scale and shift change nothing.
    d_scaled = statistics.cohens_d(3 * treated + 1, 3 * baseline + 1)
    assert d_scaled == pytest.approx(d)
    corrected = statistics.cohens_d(treated, baseline, corrected=True)
    assert corrected == pytest.approx(d * (1 - 3 / 47))


def test_the_correction_takes_out_the_bias():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(20000, 2, 3))
    ds = [statistics.cohens_d(a - 1, b, True) for a, b in samples]
    # A true effect of 1; without the correction the mean is about 1.25.
    assert np.mean(ds) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    "samples",
    [
        ([0.1], [0.2]),
        ([0.1], [0.2, 0.3]),
        ([0.1, 0.1], [0.2, 0.2]),
        ([0.1, 0.1, 0.1], [0.3] * 3),
        ([0, 0], [0, 0]),
    ],
)
def test_no_deviation_gives_nan_without_a_warning(samples):
    assert np.isnan(statistics.cohens_d(*samples))
    assert np.isnan(statistics.cohens_d(*samples, corrected=True))


def test_the_t_test_and_its_interval_are_those_of_the_differences():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 1, 9), rng.normal(size=9)
    test = statistics.paired_test(a, b)
    error = statistics.standard_error(a - b)
    assert test.count == 9
    assert test.difference == pytest.approx((a - b).mean())
    assert test.t == pytest.approx((a - b).mean() / error)
    # 2.306 is the quantile of t with 8 degrees of freedom at 0.975.
    assert test.high - test.low == pytest.approx(2 * 2.306 * error, rel=1e-4)
    assert test.high + test.low == pytest.approx(2 * test.difference)
    assert test.t_p_value == pytest.approx(stats.ttest_1samp(a - b, 0).pvalue)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 10])
def test_all_sign_flips_are_taken(count):
    rng = np.random.default_rng(count)
    a, b = rng.normal(1, 1, count), rng.normal(size=count)
    test = statistics.paired_test(a, b)
    means = [
        abs(np.mean(np.array(signs) * (a - b)))
        for signs in itertools.product((-1, 1), repeat=count)
    ]
    seen = abs(np.mean(a - b)) * (1 - 1e-12)
    assert test.exact_p_value == np.mean(np.array(means) >= seen)
    assert test.smallest_possible == 2 / 2**count


def test_three_seeds_cannot_go_below_a_quarter():
    test = statistics.paired_test([9.0, 9.1, 9.2], [1.0, 1.2, 1.1])
    assert test.exact_p_value == test.smallest_possible == 0.25
    assert test.t_p_value < 0.001


def test_equal_differences_are_as_far_from_0_despite_rounding():
    test = statistics.paired_test([0.3, 0.4, 0.5], [0.2, 0.3, 0.4])
    assert np.isnan(test.t) and np.isnan(test.t_p_value)
    assert test.exact_p_value == 0.25
    same = statistics.paired_test([0.1, 0.2], [0.1, 0.2])
    assert same.exact_p_value == 1.0 and np.isnan(same.t)


def test_only_common_seeds_are_paired():
    test = statistics.paired_test({0: 1.0, 1: 2.0, 7: 9.0}, {1: 5.0, 0: 3.0})
    assert test.count == 2 and test.difference == -2.5


def test_many_pairs_take_random_signs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.4, 1, 30), rng.normal(size=30)
    test = statistics.paired_test(a, b)
    assert test.exact_p_value == pytest.approx(test.t_p_value, abs=0.01)
    assert test.smallest_possible == 2.0**-14
    assert test == statistics.paired_test(a, b)
    clear = statistics.paired_test(a + 100, b)
    assert clear.exact_p_value == clear.smallest_possible


def test_bad_pairs_are_errors():
    for a, b in (([], []), ([1.0], [1.0, 2.0]), ({0: 1.0}, {1: 1.0})):
        with pytest.raises(ValueError, match="at least one pair.*Received"):
            statistics.paired_test(a, b)
    with pytest.raises(ValueError, match="both be by seed.*Received"):
        statistics.paired_test({0: 1.0}, [1.0])


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


def test_bad_samples_are_errors():
    for values in ([1.0, 2.0], [[1.0, 2.0]], [[1.0], [2.0]]):
        with pytest.raises(ValueError, match="`values` must be.*shape"):
            statistics.masson_loftus_error(values)
    with pytest.raises(ValueError, match="`treated` must be.*Received"):
        statistics.cohens_d([], [1.0])
    with pytest.raises(ValueError, match="`baseline` must be.*Received"):
        statistics.cohens_d([1.0], [[1.0]])


def test_more_or_less_is_better():
    signs = {
        "accuracy": 1,
        "ece": -1,
        "ece_dirichlet": -1,
        "brier_ts_sb_ece": -1,
        "mean_sweep_ce": -1,
        "ks_error_ts": -1,
        "temperature_ts": 0,
        "average_uncertainty": 0,
    }
    assert {name: statistics.better_sign(name) for name in signs} == signs


def test_bad_rows_are_errors():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        statistics.effect_sizes([])
    rows = [run("nll", 0, ece=0.1), run("nll", 0, ece=0.2)]
    with pytest.raises(ValueError, match="objective='nll', seed=0"):
        statistics.effect_sizes(rows)
    with pytest.raises(ValueError, match="mean 'ece'.*metric='ece_s'"):
        statistics.effect_sizes(rows[:1], "ece_s")


def test_what_is_not_a_number_does_not_count():
    rows = [
        run("nll", 0, ece=0.1),
        run("nll", 1, ece=0.2),
        run("nll+mmce", 0, ece=0.3),
        run("nll+mmce", 1, ece=NAN),
        run("nll+mmce", 2, ece=None),
        run("nll+s_avuc", 0),
    ]
    (effect,) = statistics.effect_sizes(rows)
    assert (effect["count"], effect["baseline_count"]) == (1, 2)


def test_a_frame_is_as_good_as_dictionaries():
    rows = [
        run(name, seed, accuracy=0.9, ece=0.1 + seed / 100)
        for name in ("nll", "nll+mmce")
        for seed in (0, 1)
    ]
    for function in (statistics.effect_sizes, statistics.significance_rows):
        np.testing.assert_equal(function(pd.DataFrame(rows)), function(rows))
    assert statistics.summarize_results(
        pd.DataFrame(rows), ["ece"]
    ) == statistics.summarize_results(rows, ["ece"])


def test_means_and_errors_over_seeds():
    rng = np.random.default_rng(0)
    table = rng.random((2, 3, 2))
    rows = [
        run(name, seed, accuracy=accuracy, ece=ece)
        for name, column in zip(("nll", "nll+mmce"), table, strict=True)
        for seed, (accuracy, ece) in enumerate(column)
    ]
    summaries = statistics.summarize_results(rows, ["ece"])
    assert [s["objective"] for s in summaries] == ["nll", "nll+mmce"]
    for summary, column in zip(summaries, table, strict=True):
        for index, metric in enumerate(("accuracy", "ece")):
            values = column[:, index]
            assert summary["mean"][metric] == pytest.approx(values.mean())
            error = statistics.standard_error(values)
            assert summary["error"][metric] == pytest.approx(error)
            assert summary["count"][metric] == 3
    assert summaries[1]["secondary"] == "mmce"


def test_the_best_gives_up_less_than_one_percent_of_accuracy():
    rows = [
        run("nll", 0, accuracy=0.90, ece=0.08),
        run("focal", 0, accuracy=0.88, ece=0.01),
        run("nll+mmce", 0, accuracy=0.891, ece=0.03),
        run("nll+sb_ece", 0, accuracy=0.93, ece=0.04),
        run("nll", 0, "other", accuracy=0.5, ece=0.5),
    ]
    summaries = statistics.summarize_results(rows, ["ece"])
    # Against the most accurate primary loss alone, not against SB-ECE.
    within = [s["within_accuracy"] for s in summaries]
    assert within == [True, False, True, True, True]
    best = [s["best"]["ece"] for s in summaries]
    assert best == [False, False, True, False, True]
    best = [s["best"]["accuracy"] for s in summaries]
    assert best == [False, False, False, True, True]
    loose = statistics.summarize_results(rows, ["ece"], max_accuracy_loss=0.05)
    assert [s["best"]["ece"] for s in loose][:2] == [False, True]


def test_without_a_primary_alone_all_are_compared():
    rows = [
        run("nll+mmce", 0, accuracy=0.80, ece=0.01),
        run("nll+sb_ece", 0, accuracy=0.90, ece=0.04),
    ]
    summaries = statistics.summarize_results(rows, ["ece"])
    assert [s["within_accuracy"] for s in summaries] == [False, True]


def test_missing_metrics_are_absent_and_one_run_has_no_error():
    rows = [
        run("nll", 0, accuracy=0.9, ece_dirichlet=0.1, temperature_ts=1.0),
        run("focal", 0, accuracy=0.9, ece_dirichlet=None, temperature_ts=2.0),
    ]
    names = ["ece_dirichlet", "temperature_ts"]
    nll, focal = statistics.summarize_results(rows, names)
    assert np.isnan(nll["error"]["ece_dirichlet"])
    assert nll["best"]["ece_dirichlet"]
    for part in ("mean", "error", "count", "best"):
        assert "ece_dirichlet" not in focal[part]
    # Of no temperature is more or less better.
    assert not nll["best"]["temperature_ts"]
    assert not focal["best"]["temperature_ts"]


def test_nothing_to_summarize_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        statistics.summarize_results([])
    with pytest.raises(ValueError, match="metric='ece_ts'"):
        statistics.summarize_results([run("nll", 0, accuracy=0.9)], ["ece_ts"])


def accuracy_rows(*pairs):
    return [
        {"id": index, "accuracy": accuracy, "ece": ece}
        for index, (accuracy, ece) in enumerate(pairs)
    ]


def best(*pairs, **options):
    return statistics.best_within_accuracy(accuracy_rows(*pairs), **options)[
        "id"
    ]


@pytest.mark.parametrize("accuracy", np.arange(0.01, 1.005, 0.01))
def test_giving_up_exactly_one_point_is_too_much(accuracy):
    # 0.91 - 0.9 is more than 0.01 in floating point, and 0.03 - 0.02 less.
    pairs = (accuracy, 0.2), (accuracy - 0.01, 0.1)
    assert best(*pairs) == 0
    assert best((accuracy, 0.2), (accuracy - 0.01 + 1e-6, 0.1)) == 1


def test_the_lowest_error_then_accuracy_then_order():
    assert best((0.95, 0.03), (0.945, 0.01), (0.9, 0.001)) == 1
    assert best((0.94, 0.01), (0.945, 0.01), (0.945, 0.01)) == 1
    assert best((0.945, 0.01), (0.945, 0.01)) == 0
    assert best((0.5, 0.3)) == 0


def test_a_wider_tolerance_and_other_keys():
    pairs = (0.95, 0.03), (0.92, 0.01)
    assert best(*pairs) == 0
    assert best(*pairs, tolerance=0.05) == 1
    rows = [{"top1": 0.9, "ks": 0.2}, {"top1": 0.9, "ks": 0.1}]
    found = statistics.best_within_accuracy(rows, "top1", "ks")
    assert found is rows[1]


def test_a_reference_from_elsewhere():
    pairs = (0.94, 0.03), (0.935, 0.01)
    assert best(*pairs, reference=0.94) == 1
    assert best(*pairs, reference=0.948) == 0
    with pytest.raises(ValueError, match="none within 0.01"):
        best(*pairs, reference=0.96)


def test_what_is_not_finite_counts_for_nothing():
    assert best((0.95, 0.1), (NAN, 0.0), (0.99, NAN), (0.8, 0.01)) == 0
    within = statistics.within_accuracy(
        [{"accuracy": value} for value in (NAN, 0.5, float("inf"), 0.495)]
    )
    assert within == [False, True, False, True]
    assert statistics.within_accuracy([]) == []


@pytest.mark.parametrize("pairs", [(), ((NAN, 0.1),), ((0.9, NAN),)])
def test_no_row_is_an_error(pairs):
    with pytest.raises(ValueError, match="`rows` must hold.*Received"):
        best(*pairs)


@pytest.mark.parametrize("tolerance", [0.0, -0.1, NAN])
def test_a_bad_tolerance_is_an_error(tolerance):
    with pytest.raises(ValueError, match="`tolerance`.*Received"):
        best((0.9, 0.1), tolerance=tolerance)


def paper_rows():
    # Ten values of mean 0 and standard deviation 1.
    values = np.arange(10) - 4.5
    values /= values.std(ddof=1)
    return [
        run(
            f"{primary}+{secondary}".rstrip("+"),
            seed,
            setting,
            ece=(mean + error * np.sqrt(10) * value) / 100,
        )
        for (setting, primary), cells in PAPER.items()
        for secondary, (mean, error) in zip(SECONDARIES, cells, strict=True)
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
    effects = statistics.effect_sizes(rows)
    by_name = {(e["setting"], e["objective"]): e for e in effects}
    # MSE alone was not run.
    assert {name for _, name in by_name} == {
        *("nll+mmce", "nll+mmce-interleaved", "focal+s_avuc")
    }
    for (setting, name), effect in by_name.items():
        baseline = values[setting, name.partition("+")[0]]
        expected = statistics.cohens_d(values[setting, name], baseline)
        assert effect["d"] == pytest.approx(expected)
        assert effect["count"] == effect["baseline_count"] == 3
        assert effect["metric"] == "ece"
    means = statistics.mean_effect_sizes(effects)
    assert [(m["secondary"], m["interleaved"]) for m in means] == [
        *(("mmce", False), ("mmce", True), ("s_avuc", False))
    ]
    ds = [by_name[setting, "nll+mmce"]["d"] for setting in ("a", "b")]
    assert means[0]["d"] == pytest.approx(np.mean(ds))
    assert means[0]["error"] == pytest.approx(abs(ds[0] - ds[1]) / 2)
    assert means[0]["count"] == 2


def test_positive_is_better_for_accuracy_too():
    rows = [
        run(name, seed, accuracy=value + seed / 100, ece=0.1)
        for name, value in (("nll", 0.8), ("nll+mmce", 0.9))
        for seed in range(3)
    ]
    (effect,) = statistics.effect_sizes(rows, "accuracy")
    assert effect["d"] == pytest.approx(10)


def test_the_order_of_the_paper_comes_from_its_table():
    effects = statistics.effect_sizes(paper_rows())
    assert len(effects) == 7 * 5
    means = statistics.mean_effect_sizes(effects)
    ordered = sorted(means, key=lambda mean: -mean["d"])
    assert [m["secondary"] for m in ordered[:3]] == ["s_avuc", "mmce", "sb_ece"]
    # "d-values obtained here are much larger" than 2.0.
    assert ordered[0]["d"] == pytest.approx(6.78, abs=0.01)


def test_one_seed_has_no_mean():
    rows = [run(name, 0, ece=0.1) for name in ("nll", "nll+mmce")]
    effects = statistics.effect_sizes(rows)
    assert len(effects) == 1 and np.isnan(effects[0]["d"])
    assert statistics.mean_effect_sizes(effects) == []


def seeded_rows():
    rng = np.random.default_rng(0)
    means = {
        "nll": 0.2,
        "focal": 0.15,
        "nll+mmce": 0.1,
        "nll+s_avuc-interleaved": 0.12,
        "focal+s_avuc": 0.05,
        "mse+sb_ece": 0.3,
    }
    return [
        run(name, seed, setting, ece=mean + 0.01 * rng.normal())
        for setting in ("a", "b")
        for name, mean in means.items()
        for seed in range(4)
    ]


def seeded_values(setting, objective):
    return {
        row["seed"]: row["ece"]
        for row in seeded_rows()
        if (row["setting"], row["objective"]) == (setting, objective)
    }


def test_every_secondary_against_its_primary_and_all_against_the_best():
    found = statistics.significance_rows(seeded_rows())
    pairs = {(r["objective"], r["against"], r["comparison"]) for r in found}
    assert pairs == {
        ("nll+mmce", "nll", "primary"),
        ("nll+s_avuc-interleaved", "nll", "primary"),
        ("focal+s_avuc", "focal", "primary"),
        ("nll", "focal+s_avuc", "best"),
        ("focal", "focal+s_avuc", "best"),
        ("nll+mmce", "focal+s_avuc", "best"),
        ("nll+s_avuc-interleaved", "focal+s_avuc", "best"),
        ("mse+sb_ece", "focal+s_avuc", "best"),
    }
    assert len(found) == 2 * len(pairs)
    for row in found:
        test = statistics.paired_test(
            seeded_values(row["setting"], row["objective"]),
            seeded_values(row["setting"], row["against"]),
        )
        assert {key: row[key] for key in test._fields} == test._asdict()


def test_the_correction_is_within_a_setting_and_comparison():
    found = statistics.significance_rows(seeded_rows())
    family = [
        row
        for row in found
        if row["setting"] == "b" and row["comparison"] == "primary"
    ]
    assert len(family) == 3
    for kind in ("t", "exact"):
        expected = statistics.holm(
            [row[f"{kind}_p_value"] for row in family]
        ).tolist()
        assert [row[f"{kind}_p_holm"] for row in family] == expected


def test_more_is_better_for_accuracy():
    some = [
        run(name, seed, accuracy=value + seed / 100)
        for name, value in (("nll", 0.8), ("focal", 0.9))
        for seed in (0, 1)
    ]
    (row,) = statistics.significance_rows(some, "accuracy")
    assert (row["objective"], row["against"]) == ("nll", "focal")
    assert row["difference"] == pytest.approx(-0.1)


def test_no_common_seed_is_no_test():
    some = [run("nll", 0, ece=0.2), run("nll+mmce", 1, ece=0.1)]
    assert statistics.significance_rows(some) == []


def test_one_seed_says_that_it_can_show_nothing():
    some = [run("nll", 0, ece=0.2), run("nll+mmce", 0, ece=0.1)]
    row, _ = statistics.significance_rows(some)
    assert row["exact_p_value"] == row["smallest_possible"] == 1.0
    assert np.isnan(row["t_p_holm"])


def test_what_is_neither_better_nor_worse_is_not_compared():
    rows = [run("nll", 0, temperature_ts=1.0)]
    for compare in (statistics.effect_sizes, statistics.significance_rows):
        with pytest.raises(ValueError, match="metric='temperature_ts'"):
            compare(rows, "temperature_ts")
        with pytest.raises(ValueError, match="`rows` must not be empty"):
            compare([])
