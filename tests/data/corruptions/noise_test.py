import numpy as np
import pytest
import scipy.stats

from caltrain_tf.data.corruptions import noise
from caltrain_tf.data.corruptions.core import Draws
from caltrain_tf.data.corruptions.noise import alias_table, choose

LEVELS = (0, 1, 100, 254, 255)
CASES = [
    ("gaussian_noise", 0.1, lambda v, rng: v + 25.5 * rng.normal(size=10**6)),
    (
        "shot_noise",
        50,
        lambda v, rng: rng.poisson(v / 255 * 50, 10**6) / 50 * 255,
    ),
    (
        "impulse_noise",
        0.07,
        lambda v, rng: rng.choice([v, 0, 255], 10**6, p=[0.93, 0.035, 0.035]),
    ),
    ("speckle_noise", 0.2, lambda v, rng: v + 0.2 * v * rng.normal(size=10**6)),
]


@pytest.mark.parametrize("name, strength, plain", CASES)
@pytest.mark.parametrize("level", LEVELS)
def test_levels_have_the_distribution_of_the_plain_recipe(
    name, strength, plain, level
):
    pixels = np.full((100, 50, 50, 3), level, np.uint8)
    noisy = getattr(noise, name)(pixels, Draws(range(100), 2), strength)
    expected = plain(level, np.random.default_rng(0))
    expected = np.uint8(np.clip(expected, 0, 255) + 1e-6)
    counts = np.stack(
        [np.bincount(x.ravel(), minlength=256) for x in (noisy, expected)]
    )
    # Rare levels together.
    rare = counts.sum(axis=0) < 20
    counts = np.c_[counts[:, ~rare], counts[:, rare].sum(axis=1)]
    counts = counts[:, counts.sum(axis=0) > 0]
    if counts.shape[1] > 1:
        assert scipy.stats.chi2_contingency(counts).pvalue > 1e-4


def test_a_table_holds_the_probabilities():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(256, 0.05), size=256)
    probabilities[0] = 1 / 256
    probabilities[1] = np.eye(256)[7]
    table = alias_table(probabilities).reshape(256, 256)
    shares = (table >> 8) / 2**24
    held = shares / 256
    rows = np.arange(256)[:, np.newaxis]
    np.add.at(held, (rows, table & 255), (1 - shares) / 256)
    np.testing.assert_allclose(held, probabilities, atol=1e-7)


def test_outcomes_are_chosen_by_the_upper_bits():
    probabilities = np.zeros((256, 256))
    probabilities[:, [3, 200]] = [0.25, 0.75]
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (4, 5000), dtype=np.uint32)
    rows = rng.integers(0, 256, bits.shape, dtype=np.uint8)
    outcomes = choose(alias_table(probabilities), rows, bits)
    assert outcomes.dtype == np.uint8 and set(np.unique(outcomes)) == {3, 200}
    assert abs((outcomes == 3).mean() - 0.25) < 0.015
