"""What a score is made of, and whether miscalibration is more than chance."""

from typing import NamedTuple

import numpy as np
from scipy.special import xlog1py, xlogy

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned, scores

SCORES = ("brier", "nll")
STATISTICS = ("ece", "ks", "brier")


class ScoreDecomposition(NamedTuple):
    """`score = miscalibration - discrimination + uncertainty`."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def score_decomposition(
    probs,
    labels,
    score="brier",
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Splits a score into miscalibration, discrimination and uncertainty.

    With the isotonic (PAV) recalibration p' of p on the same data, and the mean
    label in place of every p,

        miscalibration = S(p) - S(p')
        discrimination = S(mean) - S(p')
        uncertainty    = S(mean)
        S(p) = miscalibration - discrimination + uncertainty

    S is the mean of (p - y)^2, or of -log(p) where y = 1 and -log(1 - p) where
    y = 0. For binary problems, p is the probability of class 1 and y the label.
    For more classes, p is the confidence of the predicted class, and y is 1
    where it is right. All three parts are at least 0.

    Args:
        probs, labels: As in `calibration_error`.
        score: `"brier"`, or `"nll"`, in which probabilities are at least 1e-7.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A named tuple of `score`, `miscalibration`, `discrimination` and
        `uncertainty`. The score of a binary problem is half of `brier_score`,
        which is a sum over both classes.

    Example:
        >>> import caltrain_tf as ct
        >>> parts = ct.metrics.score_decomposition(
        ...     [0.1, 0.3, 0.6, 0.9], [0, 1, 0, 1])
        >>> [round(part, 4) for part in parts]
        [0.2175, 0.0925, 0.125, 0.25]

    Reference:
        Dimitriadis et al., "Stable reliability diagrams for probabilistic
        classifiers", 2021.
    """
    # `import caltrain_tf` does not import scikit-learn.
    from sklearn.isotonic import IsotonicRegression

    score = checks.choice("score", score, SCORES)
    shared = from_logits, multi_label, ignore_class, sample_weight
    confidence, hits, weight = outcomes(probs, labels, *shared)

    def mean_score(p):
        if score == "brier":
            return scores.mean((p - hits) ** 2, weight)
        return -scores.mean(xlogy(hits, p) + xlog1py(1 - hits, -p), weight)

    smallest = scores.SMALLEST_PROBABILITY
    total = mean_score(np.clip(confidence, smallest, 1 - smallest))
    # It takes values closer than 1e-15 for one, and the largest for outside.
    curve = IsotonicRegression(out_of_bounds="clip")
    curve.fit(confidence, hits, weight)
    best = mean_score(curve.predict(confidence))
    uncertainty = mean_score(np.full(len(hits), scores.mean(hits, weight)))
    return ScoreDecomposition(
        total, total - best, uncertainty - best, uncertainty
    )


def outcomes(probs, *arguments):
    """`positives` of two classes, `top_labels` of more, in float64."""
    if isinstance(probs, inputs.Outcomes):
        return probs
    examples = inputs.read(probs, *arguments)
    if examples.predictions.shape[1] <= 2:
        return binned.positives(examples, None)
    confidence, hits, weight = inputs.top_labels(examples, None)
    return inputs.Outcomes(confidence.astype(np.float64), hits, weight)


class CalibrationTest(NamedTuple):
    """A statistic, its p-value, and its mean and 95% point by chance."""

    value: float
    p_value: float
    expected: float
    limit: float


def calibration_test(
    probs,
    labels,
    statistic="ece",
    num_draws=1000,
    seed=0,
    *,
    num_bins=15,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Tests whether miscalibration is more than chance.

    Even a calibrated classifier has a calibration error on finite data. Its
    labels are drawn from its predictions: each predicted class is right with
    its confidence. The statistic is compared with those of `num_draws` draws,

        p = (1 + #{drawn >= seen}) / (1 + num_draws)

    which is uniform if the classifier is calibrated. The statistics are

    - `"ece"`: `calibration_error` (l2, bins of equal mass).
    - `"ks"`: `ks_error`, which has no bins.
    - `"brier"`: |mean (c - a)^2 - mean c (1 - c)|, how much the Brier score of
      confidences c and correctness a differs from the expected one
      (Spiegelhalter's test).

    Args:
        probs, labels: As in `calibration_error`.
        statistic: `"ece"`, `"ks"` or `"brier"`.
        num_draws: Number of drawn sets of labels.
        seed: Seed of the draws.
        num_bins: Number of bins, for `"ece"`.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A named tuple of the statistic's `value`, its `p_value`, and, over the
        draws, its mean `expected` and its 95% quantile `limit`.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> probs = rng.random(2000)
        >>> test = ct.metrics.calibration_test(probs, rng.random(2000) < probs)
        >>> test.p_value > 0.05, test.value < test.limit
        (True, True)
        >>> test = ct.metrics.calibration_test(probs, rng.random(2000) < 0.5)
        >>> test.p_value < 0.01, test.value > 5 * test.expected
        (True, True)

    References:
        Vaicenavicius et al., "Evaluating model calibration in classification",
        2019 (consistency resampling). Spiegelhalter, "Probabilistic prediction
        in patient management and clinical trials", 1986.
    """
    checks.choice("statistic", statistic, STATISTICS)
    num_draws = checks.count("num_draws", num_draws)
    num_bins = checks.count("num_bins", num_bins)
    seed = checks.count("seed", seed, low=0)
    shared = from_logits, multi_label, ignore_class, sample_weight
    top = inputs.top_labels(probs, labels, *shared)
    confidence, correct, weight = binned.sort_together(*top)
    share = weight / weight.sum()
    edges = binned.inner_edges(confidence, num_bins, "equal_mass", weight)
    starts = np.unique(np.searchsorted(confidence, [0.0, *edges]))
    mass = np.add.reduceat(share, starts)
    ends_of_ties = np.append(np.diff(confidence) > 0, True)

    def value(hits):
        excess = share * (confidence - hits)
        if statistic == "ece":
            return np.sqrt(np.add.reduceat(excess, starts) ** 2 @ (1 / mass))
        if statistic == "ks":
            return np.abs(np.cumsum(excess)[ends_of_ties]).max()
        # (c - a)^2 - c (1 - c) = (c - a) (2 c - 1) if a is 0 or 1.
        return np.abs(excess @ (2 * confidence - 1))

    generator = np.random.default_rng(seed)
    size, seen = len(confidence), float(value(correct))
    drawn = [
        value(generator.random(size) < confidence) for _ in range(num_draws)
    ]
    # Sums in another order round differently.
    as_large = sum(each >= seen * (1 - 1e-9) for each in drawn)
    p_value = (1 + int(as_large)) / (1 + num_draws)
    expected, limit = float(np.mean(drawn)), float(np.quantile(drawn, 0.95))
    return CalibrationTest(seen, p_value, expected, limit)
