"""Which calibrator to take, if any."""

import numpy as np

from caltrain_tf.checks import check_count
from caltrain_tf.metrics.brier_score import brier_of_rows
from caltrain_tf.metrics.calibration_error import error_of_confidence
from caltrain_tf.metrics.inputs import check_predictions
from caltrain_tf.metrics.negative_log_likelihood import nll_of_rows
from caltrain_tf.metrics.top_label import top_label
from caltrain_tf.posthoc.base import Calibrator
from caltrain_tf.posthoc.comparison import METRICS
from caltrain_tf.posthoc.comparison import Comparison
from caltrain_tf.posthoc.comparison import Score
from caltrain_tf.posthoc.dirichlet import DirichletCalibration
from caltrain_tf.posthoc.ensemble import EnsembleTemperatureScaling
from caltrain_tf.posthoc.matrix import MatrixScaling
from caltrain_tf.posthoc.temperature import TemperatureScaling
from caltrain_tf.posthoc.vector import VectorScaling

NOTHING = "none"
# Up to this many classes, matrices of classes are compared by default.
FEW_CLASSES = 100
LEVEL = 0.95


def compare(
    logits,
    labels,
    calibrators=None,
    cv=5,
    *,
    num_bins=15,
    num_samples=300,
    seed=0,
):
    """Compares calibrators out of fold, with doing nothing among them.

    Each calibrator is fitted `cv` times, and applied to the fold that it has
    not seen. Intervals of 95% are of the bootstrap ("basic"); all calibrators
    have the same resamples, so that differences are compared in pairs.

    Args:
        logits: Logits `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        calibrators: A dict of names to calibrators, or a list of calibrators;
            they are not changed. By default all of this package; of more than
            100 classes, those with a matrix of classes are left out.
        cv: Number of folds.
        num_bins: Of the ECE (l2, bins of equal mass).
        num_samples: Number of bootstrap samples.
        seed: Of the folds and of the bootstrap.

    Returns:
        A `Comparison`.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=2000)
        >>> logits = rng.normal(size=(2000, 3)) + np.eye(3)[labels]
        >>> scalers = {"ts": ct.posthoc.TemperatureScaling()}
        >>> list(ct.posthoc.compare(4 * logits, labels, scalers).better)
        ['ts']
        >>> print(ct.posthoc.compare(logits, labels, scalers).verdict())
        None is better than doing nothing: ...
    """
    logits, labels = check_predictions(logits, labels, True, "logits")
    check_count("cv", cv, low=2)
    check_count("num_bins", num_bins)
    check_count("num_samples", num_samples)
    if cv > len(labels):
        raise ValueError(
            "`cv` must not be larger than the number of rows. "
            f"Received: cv={cv} for {len(labels)} rows"
        )
    calibrators = _named(calibrators, logits.shape[1])
    generator = np.random.default_rng(seed)
    fold = generator.permutation(len(labels)) % cv
    samples = generator.spawn(1)[0].bit_generator.seed_seq
    plain = _resampled(logits, labels, num_bins, num_samples, samples)
    scores = {NOTHING: _scores(plain, plain)}
    for name, calibrator in calibrators.items():
        calibrated = _out_of_fold(calibrator, logits, labels, fold, cv)
        values = _resampled(calibrated, labels, num_bins, num_samples, samples)
        scores[name] = _scores(values, plain)
    return Comparison(scores)


def _named(calibrators, num_classes):
    if calibrators is None:
        calibrators = {
            "ts": TemperatureScaling(),
            "ts_sb_ece": TemperatureScaling("sb_ece"),
            "ensemble": EnsembleTemperatureScaling(),
            "vector": VectorScaling(),
        }
        if num_classes <= FEW_CLASSES:
            calibrators["matrix"] = MatrixScaling()
            calibrators["dirichlet"] = DirichletCalibration()
    if not isinstance(calibrators, dict):
        calibrators = {repr(c): c for c in calibrators}
    for name, calibrator in calibrators.items():
        if not isinstance(calibrator, Calibrator) or name == NOTHING:
            raise ValueError(
                "`calibrators` must hold calibrators of this package, none of "
                f"them named {NOTHING!r}. Received: {name!r}: {calibrator!r}"
            )
    return calibrators


def _out_of_fold(calibrator, logits, labels, fold, cv):
    calibrated = np.empty_like(logits)
    for index in range(cv):
        held_out = fold == index
        # A new one, so that the user's stays as it is.
        fresh = type(calibrator)(**calibrator.get_config())
        fresh.fit(logits[~held_out], labels[~held_out])
        calibrated[held_out] = fresh.transform(logits[held_out])
    return calibrated


def _resampled(logits, labels, num_bins, num_samples, seed):
    """Metrics on all rows and on resamples, `(1 + num_samples, metrics)`."""
    nll = nll_of_rows(logits, labels, from_logits=True)
    brier = brier_of_rows(logits, labels, from_logits=True)
    confidence, correct = top_label(logits, labels, from_logits=True)

    def metrics(rows):
        ece = error_of_confidence(confidence[rows], correct[rows], num_bins)
        return nll[rows].mean(), brier[rows].mean(), ece, correct[rows].mean()

    generator = np.random.default_rng(seed)
    count = len(labels)
    values = [metrics(slice(None))]
    for _ in range(num_samples):
        values.append(metrics(generator.integers(count, size=count)))
    return np.array(values)


def _scores(values, plain):
    intervals = _basic_interval(values).tolist()
    differences = _basic_interval(values - plain).tolist()
    return {
        metric: Score(
            float(values[0, i]), tuple(intervals[i]), tuple(differences[i])
        )
        for i, metric in enumerate(METRICS)
    }


def _basic_interval(values):
    """Low and high end for each column; the first row holds the values."""
    tail = (1 - LEVEL) / 2
    high, low = np.quantile(values[1:], [tail, 1 - tail], axis=0)
    return np.stack([2 * values[0] - low, 2 * values[0] - high], axis=1)
