import numpy as np
import pytest

from caltrain_tf import evaluation

NAN = float("nan")


def rows_of(*pairs):
    return [
        {"id": index, "accuracy": accuracy, "ece": ece}
        for index, (accuracy, ece) in enumerate(pairs)
    ]


def best(*pairs, **options):
    return evaluation.best_within_accuracy(rows_of(*pairs), **options)["id"]


@pytest.mark.parametrize("accuracy", np.arange(0.01, 1.005, 0.01))
def test_giving_up_exactly_one_point_is_too_much(accuracy):
    # 0.91 - 0.9 is more than 0.01 in floating point, and 0.03 - 0.02 less.
    pairs = (accuracy, 0.2), (accuracy - 0.01, 0.1)
    assert best(*pairs) == 0
    assert best((accuracy, 0.2), (accuracy - 0.01 + 1e-6, 0.1)) == 1


def test_exact_shares_of_a_split():
    for count in (100, 360, 5000):
        hits = np.arange(count // 100, count + 1)
        outside = (hits - count / 100) / count
        at = [
            best((h / count, 1), (o, 0))
            for h, o in zip(hits, outside, strict=True)
        ]
        assert set(at) == {0}
        inside = hits - np.ceil(count / 100) + 1
        above = [
            best((h / count, 1), (i / count, 0))
            for h, i in zip(hits, inside, strict=True)
        ]
        assert set(above) == {1}


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
    found = evaluation.best_within_accuracy(rows, "top1", "ks")
    assert found is rows[1]


def test_a_reference_from_elsewhere():
    pairs = (0.94, 0.03), (0.935, 0.01)
    assert best(*pairs, reference=0.94) == 1
    assert best(*pairs, reference=0.948) == 0
    with pytest.raises(ValueError, match="none within 0.01"):
        best(*pairs, reference=0.96)


def test_what_is_not_finite_counts_for_nothing():
    assert best((0.95, 0.1), (NAN, 0.0), (0.99, NAN), (0.8, 0.01)) == 0
    within = evaluation.within_accuracy(
        [{"accuracy": value} for value in (NAN, 0.5, float("inf"), 0.495)]
    )
    assert within == [False, True, False, True]
    assert evaluation.within_accuracy([]) == []


@pytest.mark.parametrize("pairs", [(), ((NAN, 0.1),), ((0.9, NAN),)])
def test_no_row_is_an_error(pairs):
    with pytest.raises(ValueError, match="`rows` must hold.*Received"):
        best(*pairs)


@pytest.mark.parametrize("tolerance", [0.0, -0.1, NAN])
def test_a_bad_tolerance_is_an_error(tolerance):
    with pytest.raises(ValueError, match="`tolerance`.*Received"):
        best((0.9, 0.1), tolerance=tolerance)
