import numpy as np
import pytest

from caltrain_tf import evaluation
from tests.evaluation.rows import run

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


def test_d_is_the_difference_over_the_pooled_deviation():
    rng = np.random.default_rng(0)
    treated, baseline = rng.normal(1, 2, 5), rng.normal(3, 1, 9)
    pooled = (4 * treated.var(ddof=1) + 8 * baseline.var(ddof=1)) / 12
    expected = (baseline.mean() - treated.mean()) / np.sqrt(pooled)
    d = evaluation.cohens_d(treated, baseline)
    assert d == pytest.approx(expected) and d > 0
    assert evaluation.cohens_d(baseline, treated) == pytest.approx(-d)
    # Scale and shift change nothing.
    d_scaled = evaluation.cohens_d(3 * treated + 1, 3 * baseline + 1)
    assert d_scaled == pytest.approx(d)
    corrected = evaluation.cohens_d(treated, baseline, corrected=True)
    assert corrected == pytest.approx(d * (1 - 3 / 47))


def test_the_correction_takes_out_the_bias():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(20000, 2, 3))
    ds = [evaluation.cohens_d(a - 1, b, True) for a, b in samples]
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
    assert np.isnan(evaluation.cohens_d(*samples))
    assert np.isnan(evaluation.cohens_d(*samples, corrected=True))


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
    effects = evaluation.effect_sizes(rows)
    by_name = {(e["setting"], e["objective"]): e for e in effects}
    # MSE alone was not run.
    assert {name for _, name in by_name} == {
        *("nll+mmce", "nll+mmce-interleaved", "focal+s_avuc")
    }
    for (setting, name), effect in by_name.items():
        baseline = values[setting, name.partition("+")[0]]
        expected = evaluation.cohens_d(values[setting, name], baseline)
        assert effect["d"] == pytest.approx(expected)
        assert effect["count"] == effect["baseline_count"] == 3
        assert effect["metric"] == "ece"
    means = evaluation.mean_effect_sizes(effects)
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
    (effect,) = evaluation.effect_sizes(rows, "accuracy")
    assert effect["d"] == pytest.approx(10)


def test_the_order_of_the_paper_comes_from_its_table():
    effects = evaluation.effect_sizes(paper_rows())
    assert len(effects) == 7 * 5
    means = evaluation.mean_effect_sizes(effects)
    ordered = sorted(means, key=lambda mean: -mean["d"])
    assert [m["secondary"] for m in ordered[:3]] == ["s_avuc", "mmce", "sb_ece"]
    # "d-values obtained here are much larger" than 2.0.
    assert ordered[0]["d"] == pytest.approx(6.78, abs=0.01)


def test_one_seed_has_no_mean():
    rows = [run(name, 0, ece=0.1) for name in ("nll", "nll+mmce")]
    effects = evaluation.effect_sizes(rows)
    assert len(effects) == 1 and np.isnan(effects[0]["d"])
    assert evaluation.mean_effect_sizes(effects) == []


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`treated` must be.*Received"):
        evaluation.cohens_d([], [1.0])
    with pytest.raises(ValueError, match="`baseline` must be.*Received"):
        evaluation.cohens_d([1.0], [[1.0]])
    rows = [run("nll", 0, temperature_ts=1.0)]
    with pytest.raises(ValueError, match="metric='temperature_ts'"):
        evaluation.effect_sizes(rows, "temperature_ts")
