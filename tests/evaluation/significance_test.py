import numpy as np
import pytest

from caltrain_tf import evaluation
from tests.evaluation.rows import run


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
            evaluation.holm(p_values), holm_by_steps(list(p_values))
        )
    # A test that could not be made does not count.
    corrected = evaluation.holm([0.01, np.nan, 0.04])
    np.testing.assert_allclose(corrected, [0.02, np.nan, 0.04])
    assert evaluation.holm([]).shape == (0,)


def rows():
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


def values(setting, objective):
    return {
        row["seed"]: row["ece"]
        for row in rows()
        if (row["setting"], row["objective"]) == (setting, objective)
    }


def test_every_secondary_against_its_primary_and_all_against_the_best():
    found = evaluation.significance_rows(rows())
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
        test = evaluation.paired_test(
            values(row["setting"], row["objective"]),
            values(row["setting"], row["against"]),
        )
        assert {key: row[key] for key in test._fields} == test._asdict()


def test_the_correction_is_within_a_setting_and_comparison():
    found = evaluation.significance_rows(rows())
    family = [
        row
        for row in found
        if row["setting"] == "b" and row["comparison"] == "primary"
    ]
    assert len(family) == 3
    for kind in ("t", "exact"):
        expected = holm_by_steps([row[f"{kind}_p_value"] for row in family])
        assert [row[f"{kind}_p_holm"] for row in family] == expected


def test_more_is_better_for_accuracy():
    some = [
        run(name, seed, accuracy=value + seed / 100)
        for name, value in (("nll", 0.8), ("focal", 0.9))
        for seed in (0, 1)
    ]
    (row,) = evaluation.significance_rows(some, "accuracy")
    assert (row["objective"], row["against"]) == ("nll", "focal")
    assert row["difference"] == pytest.approx(-0.1)


def test_no_common_seed_is_no_test():
    some = [run("nll", 0, ece=0.2), run("nll+mmce", 1, ece=0.1)]
    assert evaluation.significance_rows(some) == []


def test_one_seed_says_that_it_can_show_nothing():
    some = [run("nll", 0, ece=0.2), run("nll+mmce", 0, ece=0.1)]
    row, _ = evaluation.significance_rows(some)
    assert row["exact_p_value"] == row["smallest_possible"] == 1.0
    assert np.isnan(row["t_p_holm"])


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        evaluation.significance_rows([])
    with pytest.raises(ValueError, match="metric='temperature_ts'"):
        some = [run("nll", 0, temperature_ts=1.0)]
        evaluation.significance_rows(some, "temperature_ts")
