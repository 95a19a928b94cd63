"""Decompositions and tests against naive implementations."""

import itertools

import numpy as np
import pytest
from scipy import stats

import caltrain_tf as ct


def pooled(probs, hits, weight):
    """Isotonic regression: merges neighbours until none decreases."""
    blocks = []
    for p in np.unique(probs):
        rows = np.flatnonzero(probs == p)
        blocks.append([weight[rows] @ hits[rows], weight[rows].sum(), rows])
        while len(blocks) > 1 and (
            blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]
        ):
            total, mass, rows = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += mass
            blocks[-1][2] = np.append(blocks[-1][2], rows)
    found = np.empty(len(probs))
    for total, mass, rows in blocks:
        found[rows] = total / mass
    return found


def naive_parts(probs, hits, weight, score):
    def mean_score(p):
        with np.errstate(divide="ignore", invalid="ignore"):
            values = {
                "brier": (p - hits) ** 2,
                "nll": -np.where(hits == 1, np.log(p), np.log(1 - p)),
            }[score]
        return np.average(values, weights=weight)

    best = mean_score(pooled(probs, hits, weight))
    base = mean_score(np.full(len(hits), np.average(hits, weights=weight)))
    total = mean_score(probs)
    return total, total - best, base - best, base


@pytest.mark.parametrize("score", ["brier", "nll"])
@pytest.mark.parametrize("weighted", [False, True])
def test_decomposition_of_a_binary_problem(score, weighted):
    generator = np.random.default_rng(0)
    # Rounding makes ties.
    probs = generator.uniform(0.01, 0.99, 300).round(2)
    labels = (generator.random(300) < probs**1.5).astype(int)
    weight = generator.random(300) if weighted else np.ones(300)
    expected = naive_parts(probs, labels, weight, score)
    pair = np.stack([1 - probs, probs], axis=1)
    for predictions, options in (
        (probs, {}),
        (pair, {}),
        (np.log(pair), {"from_logits": True}),
        (probs[:, None], {"multi_label": True}),
    ):
        found = ct.metrics.score_decomposition(
            predictions,
            labels[:, None] if "multi_label" in options else labels,
            score,
            sample_weight=1e-7 * weight if weighted else None,
            **options,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found.score == pytest.approx(
        found.miscalibration - found.discrimination + found.uncertainty
    )


# Of `decompose` of the package model-diagnostics 1.5.0, with weights: score,
# miscalibration, discrimination and uncertainty.
GOLDEN = {
    "brier": (
        *(0.2248911392405063, 0.06425335929892889),
        *(0.08259247162067224, 0.24323025156224964),
    ),
    "nll": (
        *(0.6791654465801391, 0.20720177540387957),
        *(0.2075822348744048, 0.6795459060506643),
    ),
}


@pytest.mark.parametrize("score", GOLDEN)
def test_decomposition_equals_model_diagnostics(score):
    i = np.arange(40)
    probs = np.round(0.5 + 0.45 * np.sin(1.7 * i), 2)
    labels = 0.5 + 0.6 * np.cos(2.3 * i) < probs
    found = ct.metrics.score_decomposition(
        probs, labels, score, sample_weight=1 + i % 3
    )
    np.testing.assert_allclose(found, GOLDEN[score], rtol=1e-12)


@pytest.mark.parametrize("score", ["brier", "nll"])
def test_decomposition_of_the_predicted_class(score):
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(4), size=200)
    labels = generator.integers(0, 4, 200)
    hits = (probs.argmax(axis=1) == labels).astype(int)
    np.testing.assert_allclose(
        ct.metrics.score_decomposition(probs, labels, score),
        naive_parts(probs.max(axis=1), hits, np.ones(200), score),
        rtol=1e-9,
    )


def test_a_certain_error_is_finite():
    found = ct.metrics.score_decomposition([0.0, 1.0, 0.5], [1, 1, 0], "nll")
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize(
    "statistic, num_classes, size",
    [
        *itertools.product(["ece", "ks", "brier"], [2, 10], [500]),
        ("ece", 100, 500),
        ("ece", 10, 10_000),
    ],
)
def test_p_values_are_uniform_if_labels_are_drawn_from_predictions(
    statistic, num_classes, size
):
    generator = np.random.default_rng(0)
    p_values = []
    for seed in range(100):
        probs = generator.dirichlet(0.5 * np.ones(num_classes), size)
        draws = generator.random((size, 1))
        labels = (probs.cumsum(axis=1) < draws).sum(axis=1)
        labels = np.minimum(labels, num_classes - 1)
        test = ct.metrics.calibration_test(
            probs, labels, statistic, num_draws=99, seed=seed
        )
        p_values.append(test.p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


@pytest.mark.parametrize("statistic", ["ece", "ks", "brier"])
def test_miscalibration_in_either_direction_is_found(statistic):
    generator = np.random.default_rng(0)
    logits = 2 * generator.normal(size=(2000, 5))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    options = {"from_logits": True, "num_draws": 200}
    for scale in (1.4, 0.7):
        test = ct.metrics.calibration_test(
            scale * logits, labels, statistic, **options
        )
        assert test.p_value == 1 / 201 and test.value > test.limit
    calibrated = ct.metrics.calibration_test(
        logits, labels, statistic, **options
    )
    assert calibrated.p_value > 0.05
    assert calibrated.expected < calibrated.limit


def test_statistics_are_the_metrics():
    generator = np.random.default_rng(0)
    # Rounding makes ties.
    probs = generator.random(500).round(2)
    labels = generator.integers(0, 2, 500)
    weight = generator.integers(1, 4, 500)
    for statistic, metric in (
        ("ece", ct.metrics.calibration_error),
        ("ks", ct.metrics.ks_error),
    ):
        for sample_weight in (None, weight):
            test = ct.metrics.calibration_test(
                probs,
                labels,
                statistic,
                num_draws=1,
                sample_weight=sample_weight,
            )
            assert test.value == pytest.approx(
                metric(probs, labels, sample_weight=sample_weight), rel=1e-9
            )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"statistic": "mmce"}, "`statistic` must be one of"),
        ({"num_draws": 0}, "`num_draws` must be"),
        ({"num_bins": 0}, "`num_bins` must be"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        ct.metrics.calibration_test([0.5, 0.5], [0, 1], **options)
    with pytest.raises(ValueError, match="`score` must be one of"):
        ct.metrics.score_decomposition([0.5, 0.5], [0, 1], "ece")


@pytest.mark.parametrize("score", ["brier", "nll"])
def test_saturated_probabilities(score):
    logits = np.array([-2.0, 1.0, 36.0, 40.0], "float32")
    parts = ct.metrics.score_decomposition(
        logits, [0, 1, 0, 1], score, from_logits=True
    )
    assert np.isfinite(parts).all()
    # One step up to the last two, half of which are right.
    total = parts.miscalibration - parts.discrimination + parts.uncertainty
    assert parts.score == pytest.approx(total)
