"""Bad input, for every exact metric: the error names the row."""

import functools

import numpy as np
import pytest

from caltrain_tf import metrics

FUNCTIONS = {
    name: getattr(metrics, name)
    for name in metrics.__all__
    if name[0].islower() and name != "bootstrap"
}
FUNCTIONS |= {
    f"bootstrap_{name}": functools.partial(
        metrics.bootstrap, getattr(metrics, name), num_samples=2
    )
    for name in ("calibration_error", "brier_score", "accuracy")
}
PROBS = np.full((5, 4), 0.25, "float32")
LABELS = np.array([0, 1, 2, 3, 0])


def with_row(row, values):
    probs = PROBS.copy()
    probs[row] = values
    return probs


def with_label(row, value):
    labels = LABELS.astype(float)
    labels[row] = value
    return labels


BAD = {
    "nan": (with_row(3, np.nan), LABELS, r"`probs`.*probs\[3\]"),
    "infinite": (with_row(2, [np.inf, 0, 0, 0]), LABELS, r"probs\[2\]"),
    "negative": (with_row(1, [-0.1, 1.1, 0, 0]), LABELS, r"probs\[1\]"),
    "above_one": (with_row(4, [1.1, 0, 0, 0]), LABELS, r"probs\[4\]"),
    "sum": (with_row(2, [0.252, 0.25, 0.25, 0.25]), LABELS, r"probs\[2\]"),
    "one_axis": (PROBS[0], LABELS, r"probs.shape=\(4,\)"),
    "one_class": (PROBS[:, :1] * 4, LABELS, r"probs.shape=\(5, 1\)"),
    "empty": (PROBS[:0], LABELS[:0], r"probs.shape=\(0, 4\)"),
    "label_too_large": (PROBS, with_label(3, 4), r"`labels`.*labels\[3\]=4"),
    "label_negative": (PROBS, with_label(1, -1), r"labels\[1\]=-1"),
    "label_fraction": (PROBS, with_label(2, 0.5), r"labels\[2\]=0.5"),
    "label_count": (PROBS, LABELS[:3], r"labels.shape=\(3,\)"),
    "one_hot_classes": (PROBS, np.eye(3)[[0, 1, 2, 0, 0]], r"labels.shape"),
    "not_one_hot": (PROBS, np.ones((5, 4)), r"labels\[0\]"),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_raises_and_names_the_row(function, bad):
    probs, labels, message = bad
    with pytest.raises(ValueError, match=message):
        function(probs, labels)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_must_be_finite(function, value):
    logits = np.zeros((5, 4), "float32")
    logits[3, 1] = value
    with pytest.raises(ValueError, match=r"`probs`.*probs\[3\] with .*inf|nan"):
        function(logits, LABELS, from_logits=True)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e38])
def test_any_finite_logits_have_a_finite_value(function, scale):
    logits = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    value = function(logits * np.float32(scale), LABELS, from_logits=True)
    if isinstance(value, float):
        assert np.isfinite(value)
