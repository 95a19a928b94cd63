import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf import metrics

RNG = np.random.default_rng(0)
SETS = RNG.random((60, 4)) < 0.6
LABELS = RNG.integers(0, 4, 60)
WEIGHTS = RNG.random(60)


def naive_coverage(sets, labels, weights):
    held = [w for s, y, w in zip(sets, labels, weights, strict=True) if s[y]]
    return sum(held) / sum(weights)


def test_coverage_is_the_share_of_sets_with_the_label():
    ones = np.ones(60)
    expected = naive_coverage(SETS, LABELS, ones)
    for sets in (SETS, SETS.astype("float32"), tf.constant(SETS)):
        for labels in (LABELS, np.eye(4)[LABELS], LABELS[:, None]):
            found = metrics.coverage(sets, labels)
            assert type(found) is float
            assert found == pytest.approx(expected, abs=1e-15)
    tokens = SETS.reshape(3, 20, 4), LABELS.reshape(3, 20)
    assert metrics.coverage(*tokens) == pytest.approx(expected, abs=1e-15)


def test_size_is_the_mean_number_of_classes():
    expected = sum(map(sum, SETS.tolist())) / 60
    assert metrics.set_size(SETS) == pytest.approx(expected, abs=1e-15)
    assert metrics.set_size(SETS.reshape(3, 20, 4)) == metrics.set_size(SETS)


def test_weights_and_ignored_examples():
    for scale in (1, 1e-7):
        weights = scale * WEIGHTS
        assert metrics.coverage(
            SETS, LABELS, sample_weight=weights
        ) == pytest.approx(naive_coverage(SETS, LABELS, WEIGHTS), rel=1e-12)
        size = metrics.set_size(SETS, sample_weight=weights)
        expected = np.average(SETS.sum(axis=1), weights=WEIGHTS)
        assert size == pytest.approx(expected, rel=1e-12)
    labels = np.where(WEIGHTS < 0.3, -1, LABELS)
    found = metrics.coverage(
        SETS, labels, ignore_class=-1, sample_weight=WEIGHTS
    )
    kept = WEIGHTS >= 0.3
    expected = naive_coverage(SETS[kept], LABELS[kept], WEIGHTS[kept])
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "sets, labels, options, message",
    [
        (SETS[0], 1, {}, r"`sets`.*\(4,\)"),
        (SETS[:0], LABELS[:0], {}, r"`sets`.*\(0, 4\)"),
        (0.5 * SETS, LABELS, {}, "`sets` must hold True.*Received: 0.5"),
        ("all", LABELS, {}, "`sets`"),
        (SETS, LABELS + 4, {}, r"`labels`.*labels\[0\]"),
        (SETS, LABELS[:-1], {}, r"`labels`.*\(59,\)"),
        (SETS, LABELS, {"sample_weight": -WEIGHTS}, "`sample_weight`"),
        (SETS, LABELS, {"sample_weight": 0 * WEIGHTS}, "`sample_weight`"),
        (SETS, 0 * LABELS, {"ignore_class": 0}, "`ignore_class`"),
        (SETS, LABELS, {"ignore_class": 0.5}, "`ignore_class`"),
        ([[True, False]], None, {}, "`labels` must hold"),
    ],
)
def test_bad_input_is_named(sets, labels, options, message):
    with pytest.raises(ValueError, match=message):
        metrics.coverage(sets, labels, **options)
