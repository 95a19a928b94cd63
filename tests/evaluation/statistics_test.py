import itertools

import numpy as np
import pytest
from scipy import stats

from caltrain_tf import evaluation


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


@pytest.mark.parametrize("count", [2, 3, 5, 9, 20])
def test_the_t_test_is_that_of_scipy(count):
    rng = np.random.default_rng(count)
    a, b = rng.normal(0.5, 1, count), rng.normal(size=count)
    expected = stats.ttest_rel(a, b)
    test = evaluation.paired_test(a, b)
    assert test.t == pytest.approx(expected.statistic)
    assert test.t_p_value == pytest.approx(expected.pvalue)
    assert test.difference == pytest.approx((a - b).mean())
    assert test.count == count


@pytest.mark.parametrize("count", [1, 2, 3, 6, 10])
def test_all_sign_flips_are_taken(count):
    rng = np.random.default_rng(count)
    a, b = rng.normal(1, 1, count), rng.normal(size=count)
    test = evaluation.paired_test(a, b)
    means = [
        abs(np.mean(np.array(signs) * (a - b)))
        for signs in itertools.product((-1, 1), repeat=count)
    ]
    seen = abs(np.mean(a - b)) * (1 - 1e-12)
    assert test.exact_p_value == np.mean(np.array(means) >= seen)
    assert test.smallest_possible == 2 / 2**count


def test_the_exact_test_is_that_of_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 1, 8), rng.normal(size=8)
    expected = stats.permutation_test(
        (a - b,),
        lambda d, axis: d.mean(axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    test = evaluation.paired_test(a, b)
    assert test.exact_p_value == pytest.approx(expected.pvalue)


def test_three_seeds_cannot_go_below_a_quarter():
    test = evaluation.paired_test([9.0, 9.1, 9.2], [1.0, 1.2, 1.1])
    assert test.exact_p_value == test.smallest_possible == 0.25
    assert test.t_p_value < 0.001


def test_equal_differences_are_as_far_from_0_despite_rounding():
    test = evaluation.paired_test([0.3, 0.4, 0.5], [0.2, 0.3, 0.4])
    assert np.isnan(test.t) and np.isnan(test.t_p_value)
    assert test.exact_p_value == 0.25
    same = evaluation.paired_test([0.1, 0.2], [0.1, 0.2])
    assert same.exact_p_value == 1.0 and np.isnan(same.t)


def test_only_common_seeds_are_paired():
    test = evaluation.paired_test({0: 1.0, 1: 2.0, 7: 9.0}, {1: 5.0, 0: 3.0})
    assert test.count == 2 and test.difference == -2.5


def test_many_pairs_take_random_signs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.4, 1, 30), rng.normal(size=30)
    test = evaluation.paired_test(a, b)
    assert test.exact_p_value == pytest.approx(test.t_p_value, abs=0.01)
    assert test.smallest_possible == 2.0**-14
    assert test == evaluation.paired_test(a, b)
    clear = evaluation.paired_test(a + 100, b)
    assert clear.exact_p_value == clear.smallest_possible


def test_bad_pairs_are_errors():
    for a, b in (([], []), ([1.0], [1.0, 2.0]), ({0: 1.0}, {1: 1.0})):
        with pytest.raises(ValueError, match="at least one pair.*Received"):
            evaluation.paired_test(a, b)
    with pytest.raises(ValueError, match="both be by seed.*Received"):
        evaluation.paired_test({0: 1.0}, [1.0])


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


def test_bad_samples_are_errors():
    for values in ([1.0, 2.0], [[1.0, 2.0]], [[1.0], [2.0]]):
        with pytest.raises(ValueError, match="`values` must be.*shape"):
            evaluation.masson_loftus_error(values)
    with pytest.raises(ValueError, match="`treated` must be.*Received"):
        evaluation.cohens_d([], [1.0])
    with pytest.raises(ValueError, match="`baseline` must be.*Received"):
        evaluation.cohens_d([1.0], [[1.0]])
