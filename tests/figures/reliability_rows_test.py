import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.figures.reliability_rows import curves_by_objective


def predictions(seed, size=400, num_classes=4):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(size, num_classes))
    powers = np.exp(logits)
    probs = powers / powers.sum(axis=1, keepdims=True)
    return probs, rng.integers(0, num_classes, size)


def reliability_rows(objective, seed, calibrator="none", num_bins=15, **more):
    """The rows of a run, of `predictions(seed, **more)`."""
    curve = ct.metrics.reliability_curve(
        *predictions(seed, **more), num_bins, "equal_width"
    )
    return [
        {
            "setting": "s",
            "objective": objective,
            "seed": seed,
            "calibrator": calibrator,
            "bin": index,
            "confidence": confidence,
            "accuracy": accuracy,
            "count": count,
        }
        for index, (confidence, accuracy, count) in enumerate(
            zip(*(values.tolist() for values in curve), strict=True)
        )
    ]


def all_together(*seeds):
    pairs = [predictions(seed) for seed in seeds]
    probs = np.concatenate([pair[0] for pair in pairs])
    return probs, np.concatenate([pair[1] for pair in pairs])


def test_seeds_together_are_the_curve_of_all_predictions():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal", 2)
    rows += reliability_rows("nll", 3, "ts")
    curves = curves_by_objective(rows, "none", 15)
    assert list(curves) == ["nll", "focal"]
    expected = ct.metrics.reliability_curve(
        *all_together(0, 1), 15, "equal_width"
    )
    # Chance is 1/4: the first bins are empty.
    assert np.isnan(expected.confidence[:3]).all()
    for values, reference in zip(curves["nll"], expected, strict=True):
        np.testing.assert_allclose(values, reference)


def test_empty_bins_may_be_left_out():
    rows = reliability_rows("nll", 0)
    some = [row for row in rows if row["count"]]
    none = [row | {"confidence": None} for row in rows if not row["count"]]
    expected = curves_by_objective(rows, "none", 15)["nll"]
    for kept in (some, some + none):
        curve = curves_by_objective(kept, "none", 15)["nll"]
        for values, reference in zip(curve, expected, strict=True):
            np.testing.assert_array_equal(values, reference)


def test_bad_input_is_an_error():
    rows = reliability_rows("nll", 0)
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        curves_by_objective([], "none", 15)
    with pytest.raises(ValueError, match="calibrator='ts'"):
        curves_by_objective(rows, "ts", 15)
    for num_bins in (10, 20):
        with pytest.raises(ValueError, match=f"{num_bins} equal bins.*bin="):
            curves_by_objective(rows, "none", num_bins)
    one_based = [row | {"bin": row["bin"] + 1} for row in rows]
    with pytest.raises(ValueError, match="with number 0.*Received: bin="):
        curves_by_objective(one_based, "none", 15)
