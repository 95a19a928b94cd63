import itertools

import numpy as np
import pytest
from scipy import stats

from caltrain_tf import evaluation


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


def test_bad_input_is_an_error():
    for a, b in (([], []), ([1.0], [1.0, 2.0]), ({0: 1.0}, {1: 1.0})):
        with pytest.raises(ValueError, match="at least one pair.*Received"):
            evaluation.paired_test(a, b)
    with pytest.raises(ValueError, match="both be by seed.*Received"):
        evaluation.paired_test({0: 1.0}, [1.0])
