import numpy as np
import pytest

import caltrain_tf as ct


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_it_is_what_comparing_all_pairs_finds(columns):
    rng = np.random.default_rng(columns)
    # Few values, so that many are the same.
    points = rng.integers(0, 5, (40, columns))
    expected = [
        not any(
            all(b <= a for a, b in zip(point, other, strict=True))
            and tuple(other) != tuple(point)
            for other in points
        )
        for point in points
    ]
    front = ct.figures.pareto_front(points)
    assert front.tolist() == expected
    assert 0 < front.sum() < 40


def test_equal_points_are_all_on_the_front():
    front = ct.figures.pareto_front([[1, 1], [1, 1], [2, 1]])
    assert front.tolist() == [True, True, False]
    assert ct.figures.pareto_front(np.zeros((0, 2))).shape == (0,)


def test_bad_input_is_an_error():
    for points in ([1.0, 2.0], [[1.0, np.nan]]):
        with pytest.raises(ValueError, match="`points` must be.*Received"):
            ct.figures.pareto_front(points)
