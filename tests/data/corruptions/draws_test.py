import numpy as np
import scipy.stats

from caltrain_tf.data.corruptions.core import Draws

PLACES = np.arange(500)


def is_plausible(p_value):
    return 1e-4 < p_value < 1 - 1e-4


def test_values_have_their_distributions():
    draws = Draws(PLACES, 3)
    uniform = draws.uniform([401])
    assert 0 <= uniform.min() and uniform.max() < 1
    assert is_plausible(scipy.stats.kstest(uniform.ravel(), "uniform").pvalue)
    normal = draws.normal([401], mean=2.0, scale=3.0)
    test = scipy.stats.kstest(normal.ravel(), "norm", (2.0, 3.0))
    assert is_plausible(test.pvalue)
    integers = draws.integers([401], -2, 1)
    values, counts = np.unique(integers, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1]
    assert is_plausible(scipy.stats.chisquare(counts).pvalue)


def test_neighbours_in_every_direction_are_independent():
    draws = Draws(PLACES, 3)
    first, second = draws.uniform([400]), draws.uniform([400])
    other_set = Draws(PLACES, 4).uniform([400])
    for one, other in (
        (first[:, 1:], first[:, :-1]),
        (first[1:], first[:-1]),
        (first, second),
        (first, other_set),
    ):
        pairs, _, _ = np.histogram2d(one.ravel(), other.ravel(), bins=16)
        assert is_plausible(scipy.stats.chisquare(pairs.ravel()).pvalue)


def test_large_seeds_and_places_count():
    def first(place, set_number):
        return float(Draws([place], set_number).uniform([1])[0, 0])

    numbers = [0, 1, 2**20, 2**31, 2**37]
    values = {first(0, number) for number in numbers}
    values |= {first(place, 0) for place in (1, 49_999, 2**31)}
    assert len(values) == 8


def test_empty_shapes_are_scalars():
    assert Draws([4, 5], 0).uniform([]).shape == (2,)
    assert Draws([4, 5], 0).normal([3]).shape == (2, 3)
