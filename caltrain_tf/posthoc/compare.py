"""Comparison of calibrators with each other and with doing nothing."""

import warnings
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import clone

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned, scores
from caltrain_tf.posthoc import affine, base, binary, ensemble, temperature

METRICS = ("nll", "brier", "ece", "accuracy")
# Metrics in which a calibrator can be called better than doing nothing.
DECISIVE = ("nll", "brier", "ece")
NOTHING = "none"
# Up to this many classes, calibrators with a matrix are compared by default.
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
    from_probs=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Compares calibrators with doing nothing, by cross-validation.

    Each calibrator is fitted `cv` times, and applied to the fold that it has
    not seen. Folds are shuffled and have the same shares of the classes. The
    95% intervals are "basic" bootstrap intervals; all calibrators have the same
    resamples, so that differences are paired. A calibrator is called better in
    NLL, Brier score or ECE if its difference from doing nothing is significant
    at 5% after Holm's correction for all these tests.

    Args:
        logits: Logits, or probabilities, of any shape that `Calibrator` takes.
        labels: Class ids, or one-hot rows.
        calibrators: A dict of names to calibrators, or a list of calibrators;
            they are not changed. By default all calibrators of this package;
            for more than 100 classes, those with a K x K matrix are left out.
        cv: Number of folds.
        num_bins: Number of bins of the ECE (l2, bins of equal mass).
        num_samples: Number of bootstrap samples.
        seed: Seed of the folds and of the bootstrap.
        from_probs: Whether predictions are probabilities instead of logits.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.
        sample_weight: A weight >= 0 for each example.

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
    cv = checks.count("cv", cv, low=2)
    num_bins = checks.count("num_bins", num_bins)
    num_samples = checks.count("num_samples", num_samples, low=2)
    seed = checks.count("seed", seed, low=0)
    if labels is None:
        raise ValueError("`labels` must be given. Received: labels=None")
    examples = inputs.read(
        logits,
        labels,
        from_logits=not from_probs,
        multi_label=multi_label,
        ignore_class=ignore_class,
        sample_weight=sample_weight,
        name="logits",
        of_calibrator=True,
    )
    logits, labels, weights = base.Data(examples, from_probs).whole()
    if cv > len(labels):
        raise ValueError(
            "`cv` must not be larger than the number of rows. "
            f"Received: cv={cv} for {len(labels)} rows"
        )
    calibrators = _named(calibrators, logits.shape[1])
    folds = base.folds(labels, cv, seed)
    options = (labels, weights, num_bins, num_samples, seed)
    values = {NOTHING: _resampled(logits, *options)}
    for name, calibrator in calibrators.items():
        calibrated = _out_of_fold(calibrator, logits, labels, weights, folds)
        values[name] = _resampled(calibrated, *options)
    return Comparison(_scores(values))


class Score(NamedTuple):
    """A metric's value, its interval, and the difference from doing nothing.

    `difference` is the interval of the value minus that of doing nothing, on
    the same resamples. `p_value` is the probability of a difference at least as
    large by chance, corrected for the number of tests (1 if it is not tested).
    """

    value: float
    interval: tuple
    difference: tuple
    p_value: float

    @property
    def is_better(self):
        """Whether it is significantly lower than that of doing nothing."""
        return self.p_value < 1 - LEVEL and sum(self.difference) < 0


class Comparison:
    """The result of `compare`. Prints as a table.

    Attributes:
        scores: Dict from calibrators, `"none"` first, to dicts of `Score` by
            `"nll"`, `"brier"`, `"ece"` and `"accuracy"`.
        better: Dict from the calibrators that are better than doing nothing to
            the metrics in which they are better, among NLL, Brier score and
            ECE.
    """

    def __init__(self, scores):
        self.scores = scores
        self.better = {}
        for name, score in scores.items():
            metrics = [m for m in DECISIVE if score[m].is_better]
            if metrics:
                self.better[name] = metrics

    def __str__(self):
        """Returns the table and the verdict."""
        lines = [["calibrator", *METRICS]]
        for name, score in self.scores.items():
            lines.append([name, *(_format(score[m]) for m in METRICS)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join(line.rstrip() for line in [*table, self.verdict()])

    def verdict(self):
        """Returns a sentence that names what is better than doing nothing."""
        if not self.better:
            return (
                "None is better than doing nothing: no calibrator lowers NLL, "
                "Brier score or ECE by more than chance would."
            )
        names = "; ".join(
            f"{k} ({', '.join(v)})" for k, v in self.better.items()
        )
        return f"Better than doing nothing (*): {names}."


def _format(score):
    low, high = score.interval
    mark = "*" if score.is_better else ""
    return f"{score.value:.4f}{mark} [{low:.4f}, {high:.4f}]"


def default_calibrators(num_classes):
    """Returns the calibrators that `compare` takes by default, by name.

    For more than 100 classes, those with a K x K matrix are left out.
    """
    calibrators = {
        "ts": temperature.TemperatureScaling(),
        "ts_sb_ece": temperature.TemperatureScaling("sb_ece"),
        "ts_hb_ece": temperature.TemperatureScaling("hb_ece"),
        "ensemble": ensemble.EnsembleTemperatureScaling(),
        "vector": affine.VectorScaling(),
        "structured_vector": affine.StructuredVectorScaling(),
        "platt": binary.PlattScaling(),
        "beta": binary.BetaCalibration(),
        "isotonic": binary.IsotonicCalibration(),
    }
    if num_classes <= FEW_CLASSES:
        calibrators["matrix"] = affine.MatrixScaling()
        calibrators["structured_matrix"] = affine.StructuredMatrixScaling()
        calibrators["dirichlet"] = affine.DirichletCalibration()
    return calibrators


def _named(calibrators, num_classes):
    if calibrators is None:
        calibrators = default_calibrators(num_classes)
    if not isinstance(calibrators, dict | list | tuple) or not calibrators:
        raise ValueError(
            "`calibrators` must be a dict or a list of at least one. "
            f"Received: calibrators={calibrators!r}"
        )
    if not isinstance(calibrators, dict):
        named = {repr(c): c for c in calibrators}
        if len(named) < len(calibrators):
            raise ValueError(
                "`calibrators` must differ, or be a dict with a name for each. "
                f"Received: {', '.join(map(repr, calibrators))}"
            )
        calibrators = named
    for name, calibrator in calibrators.items():
        if not isinstance(calibrator, base.Calibrator) or name == NOTHING:
            raise ValueError(
                "`calibrators` must hold calibrators of this package, none of "
                f"them named {NOTHING!r}. Received: {name!r}: {calibrator!r}"
            )
    return calibrators


def _out_of_fold(calibrator, logits, labels, weights, folds):
    calibrated = np.empty_like(logits)
    for rest, fold in folds:
        # A clone for logits `(n, K)`; the user's calibrator is not changed.
        fresh = clone(calibrator).set_params(
            from_probs=False, multi_label=False, ignore_class=None
        )
        with warnings.catch_warnings():
            # The table says so.
            warnings.filterwarnings("ignore", ".*cross-validated NLL")
            warnings.filterwarnings("ignore", ".*look like probabilities")
            fresh.fit(logits[rest], labels[rest], weights[rest])
            calibrated[fold] = fresh.transform(logits[fold])
    return calibrated


def _resampled(logits, labels, weights, num_bins, num_samples, seed):
    """Metrics on all rows and on resamples, `(1 + num_samples, metrics)`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*looks like probabilities")
        examples = inputs.read(logits, labels, from_logits=True)
        top = inputs.top_labels(logits, labels, from_logits=True)
    confidence, correct, _ = top
    nll = scores.nll_of_examples(examples)
    brier = scores.brier_of_examples(examples)
    means = np.stack([nll, brier, correct], axis=1)

    def metrics(rows):
        chosen = weights[rows]
        nll, brier, accuracy = np.average(means[rows], axis=0, weights=chosen)
        ece = binned.error_of_confidence(
            confidence[rows], correct[rows], num_bins, weight=chosen
        )
        return nll, brier, ece, accuracy

    generator = np.random.default_rng(seed)
    count = len(labels)
    values = [metrics(slice(None))]
    for _ in range(num_samples):
        values.append(metrics(generator.integers(count, size=count)))
    return np.array(values)


def _scores(values):
    """Dicts of `Score` from the arrays of `_resampled`."""
    plain = values[NOTHING]
    tested = [
        (name, metric)
        for name in values
        for metric in DECISIVE
        if name != NOTHING
    ]
    p_values = holm(
        [
            _p_value((values[name] - plain)[:, METRICS.index(metric)])
            for name, metric in tested
        ]
    )
    p_values = dict(zip(tested, p_values, strict=True))
    largest = (np.inf, 2.0, 1.0, 1.0)
    scores = {}
    for name, each in values.items():
        intervals = np.clip(_basic_interval(each).T, 0, largest).T.tolist()
        differences = _basic_interval(each - plain).tolist()
        scores[name] = {
            metric: Score(
                float(each[0, i]),
                tuple(intervals[i]),
                tuple(differences[i]),
                float(p_values.get((name, metric), 1.0)),
            )
            for i, metric in enumerate(METRICS)
        }
    return scores


def _basic_interval(values):
    """Low and high end for each column; the first row holds the values."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values[1:], [tail, 1 - tail], axis=0)
    return np.stack([2 * values[0] - high, 2 * values[0] - low], axis=1)


def _p_value(differences):
    """Two-sided p-value of a difference, with normally distributed resamples.

    Counting resamples would need thousands of them for p-values that are still
    small after a correction. As in the interval, the bias of resampling is
    removed.
    """
    deviation = differences[1:].std(ddof=1)
    if deviation == 0:
        return 1.0
    pivot = 2 * differences[0] - differences[1:].mean()
    return 2 * stats.norm.sf(abs(pivot) / deviation)


def holm(p_values):
    """Holm's correction of p-values for their number.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.maximum.accumulate(factors * p_values[order])
    return np.minimum(corrected, 1.0)
