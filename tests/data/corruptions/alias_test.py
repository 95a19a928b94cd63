import numpy as np

from caltrain_tf.data.corruptions.noise import alias_table
from caltrain_tf.data.corruptions.noise import choose


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
