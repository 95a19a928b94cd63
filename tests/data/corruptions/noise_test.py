import numpy as np
import pytest
import scipy.stats

from caltrain_tf.data.corruptions import core, noise

LEVELS = (0, 1, 100, 255)
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
]


@pytest.mark.parametrize("name, strength, plain", CASES)
@pytest.mark.parametrize("level", LEVELS)
def test_levels_have_the_distribution_of_the_plain_recipe(
    name, strength, plain, level
):
    image = np.full((500, 500, 3), level / 255)
    rng = np.random.default_rng(1)
    noisy = core.to_pixels(getattr(noise, name)(image, rng, strength))
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
