"""Comparison of calibrators with each other and with doing nothing."""

import html
import itertools
import warnings
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import clone

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned, scores
from caltrain_tf.posthoc import affine, base, binary, ensemble, temperature

METRICS = ("nll", "brier", "ece", "marginal_ece", "accuracy")
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
    95% intervals are of the bootstrap; all calibrators have the same resamples,
    so that differences are paired. A calibrator is called better in NLL, Brier
    score or ECE if its difference from doing nothing is significant at 5% after
    Holm's correction for all these tests, and harmful if its NLL is
    significantly higher.

    The ECE is debiased: calibrated predictions have an ECE of about 0, whatever
    the number of examples.

    Args:
        logits: Logits, or probabilities, of any shape that `Calibrator` takes,
            such as those of `predict_proba` with `from_probs=True`.
        labels: Class ids, or one-hot rows.
        calibrators: A dict of names to calibrators, or a list of calibrators;
            they are not changed. By default all but `AutoCalibration`; for more
            than 100 classes, those with a K x K matrix are left out.
        cv: Number of folds.
        num_bins: Number of bins of the ECE (l2, bins of equal mass).
        num_samples: Number of bootstrap samples.
        seed: Seed of the folds and of the bootstrap.
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.
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
        >>> result = ct.posthoc.compare(4 * logits, labels, scalers)
        >>> result.best
        'ts'
        >>> result.fit(4 * logits, labels)
        TemperatureScaling(temperature_=...)
        >>> print(ct.posthoc.compare(logits, labels, scalers).verdict())
        None is better than doing nothing: ...
    """
    cv = checks.count("cv", cv, low=2)
    num_bins = checks.count("num_bins", num_bins)
    num_samples = checks.count("num_samples", num_samples, low=2)
    seed = checks.count("seed", seed, low=0)
    options = {
        "from_probs": from_probs,
        "multi_label": multi_label,
        "ignore_class": ignore_class,
    }
    reader = temperature.TemperatureScaling(**options)
    examples = reader._read(logits, labels, sample_weight)
    logits, labels, weights = base.arrays_of(examples, from_probs)
    if cv > len(labels):
        raise ValueError(
            "`cv` must not be larger than the number of rows. "
            f"Received: cv={cv} for {len(labels)} rows"
        )
    calibrators = _named(calibrators, logits.shape[1])
    folds = base.folds(labels, cv, seed)
    measured = {}
    for name, each in {NOTHING: None, **calibrators}.items():
        held_out = out_of_fold(each, logits, labels, weights, folds)
        measured[name] = measure(held_out, num_bins, num_samples, seed)
    return Comparison(measured, calibrators, options)


class Score(NamedTuple):
    """A metric's value and interval, and its difference from doing nothing.

    The marginal ECE has no interval. The difference is that of NLLs, of Brier
    scores or of squared ECEs; its p-value is corrected for the number of tests.
    """

    value: float
    interval: list | None
    difference: float = 0.0
    p_value: float = 1.0

    @property
    def is_better(self):
        """Whether it is significantly lower than that of doing nothing."""
        return self.p_value < 1 - LEVEL and self.difference < 0

    def __str__(self):
        """Returns the value, marked if it is better, and its interval."""
        text = f"{self.value:.4f}{'*' if self.is_better else ''}"
        if self.interval is None:
            return text
        return f"{text} [{self.interval[0]:.4f}, {self.interval[1]:.4f}]"


class Comparison:
    """The result of `compare`. Prints as a table, also in notebooks.

    Attributes:
        scores: Dict from calibrators, `"none"` first, to dicts of `Score` by
            `"nll"`, `"brier"`, `"ece"`, `"marginal_ece"` and `"accuracy"`.
        better: Dict from the calibrators that are better than doing nothing to
            the metrics in which they are, among `"nll"`, `"brier"`, `"ece"`.
        harmful: List of the calibrators whose NLL is significantly higher.
        best: The calibrator of the lowest NLL among those that are better in
            NLL; `"none"` if there is none.
    """

    def __init__(self, measured, calibrators, options):
        self._calibrators, self._options = calibrators, options
        self.scores = {name: scores for name, (scores, _) in measured.items()}
        plain = measured[NOTHING][1]
        tests = [_differences(measured[n][1] - plain) for n in calibrators]
        differences, p_values = np.swapaxes(tests, 0, 1).reshape(2, -1)
        self.better, self.harmful = {}, []
        for (name, metric), difference, p_value in zip(
            itertools.product(calibrators, DECISIVE),
            differences.tolist(),
            holm(p_values).tolist(),
            strict=True,
        ):
            value, interval, *_ = self.scores[name][metric]
            score = Score(value, interval, difference, p_value)
            self.scores[name][metric] = score
            if score.is_better:
                self.better.setdefault(name, []).append(metric)
            elif metric == "nll" and difference > 0 and p_value < 1 - LEVEL:
                self.harmful.append(name)
        self.best = min(
            (name for name, better in self.better.items() if "nll" in better),
            key=lambda name: self.scores[name]["nll"].value,
            default=NOTHING,
        )

    def fit(self, logits, labels, sample_weight=None):
        """Returns the best calibrator, fitted to arguments as of `compare`.

        If doing nothing is best, it has a temperature of 1.
        """
        best = self._calibrators.get(
            self.best, temperature.TemperatureScaling()
        )
        best = clone(best).set_params(**self._options)
        best.fit(logits, labels, sample_weight)
        if self.best == NOTHING:
            best.temperature_ = 1.0
        return best

    def to_frame(self):
        """Returns a pandas data frame, a row for each calibrator."""
        pd = checks.library("pandas", "baselines")
        rows = {}
        for name, of_name in self.scores.items():
            row = rows[name] = {}
            for metric, score in of_name.items():
                row[metric] = score.value
                if score.interval is not None:
                    row[f"{metric}_low"], row[f"{metric}_high"] = score.interval
                if metric in DECISIVE:
                    row[f"{metric}_p_value"] = score.p_value
            row["harmful"] = name in self.harmful
        return pd.DataFrame.from_dict(rows, orient="index")

    def _rows(self):
        yield ["calibrator", *METRICS]
        for name, of_name in self.scores.items():
            cells = [str(of_name[metric]) for metric in METRICS]
            cells[0] += "!" if name in self.harmful else ""
            yield [name, *cells]

    def __str__(self):
        """Returns the table and the verdict."""
        rows = list(self._rows())
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)) for row in rows]
        return "\n".join([*map(str.rstrip, lines), self.verdict()])

    __repr__ = __str__

    def _repr_html_(self):
        """Returns the table for notebooks."""
        rows = ("</td><td>".join(map(html.escape, row)) for row in self._rows())
        body = "".join(f"<tr><td>{row}</td></tr>" for row in rows)
        return f"<table>{body}</table><p>{html.escape(self.verdict())}</p>"

    def verdict(self):
        """Returns what is better than doing nothing, and what does harm."""
        text = (
            "None is better than doing nothing: no calibrator lowers NLL, "
            "Brier score or ECE by more than chance would."
        )
        if self.better:
            listed = "; ".join(
                f"{name} ({', '.join(metrics)})"
                for name, metrics in self.better.items()
            )
            text = f"Better than doing nothing (*): {listed}."
        if self.harmful:
            text += f" Harmful, a higher NLL (!): {', '.join(self.harmful)}."
        return text


def default_calibrators(num_classes):
    """Returns the calibrators that `compare` takes by default, by name."""
    calibrators = {
        "ts": temperature.TemperatureScaling(),
        "ts_sb_ece": temperature.TemperatureScaling("sb_ece"),
        "ts_hb_ece": temperature.TemperatureScaling("hb_ece"),
        "ensemble": ensemble.EnsembleTemperatureScaling(),
        "platt": binary.PlattScaling(),
        "beta": binary.BetaCalibration(),
        "isotonic": binary.IsotonicCalibration(),
        "vector": affine.VectorScaling(),
        "structured_vector": affine.StructuredVectorScaling(),
    }
    if num_classes <= FEW_CLASSES:
        calibrators["matrix"] = affine.MatrixScaling()
        calibrators["structured_matrix"] = affine.StructuredMatrixScaling()
        calibrators["dirichlet"] = affine.DirichletCalibration()
    return calibrators


def _named(calibrators, num_classes):
    if calibrators is None:
        return default_calibrators(num_classes)
    named = calibrators
    if isinstance(calibrators, list | tuple):
        named = {repr(each): each for each in calibrators}
    is_valid = isinstance(named, dict) and named and NOTHING not in named
    if not is_valid or not all(
        isinstance(each, base.Calibrator) for each in named.values()
    ):
        raise ValueError(
            "`calibrators` must be a dict or a list of at least one calibrator "
            f"of this package, none of them named {NOTHING!r}. "
            f"Received: calibrators={calibrators!r}"
        )
    return named


def out_of_fold(calibrator, logits, labels, weights, folds):
    """`inputs.Examples`, calibrated by fits to the other folds if at all."""
    calibrated = logits.copy()
    with warnings.catch_warnings():
        # The table shows what these would say of a part of the data.
        warnings.simplefilter("ignore", UserWarning)
        for rest, fold in folds if calibrator is not None else ():
            # A clone for logits `(n, K)`; the user's calibrator is not changed.
            fresh = clone(calibrator).set_params(
                from_probs=False, multi_label=False, ignore_class=None
            )
            fresh.fit(logits[rest], labels[rest], weights[rest])
            calibrated[fold] = fresh.transform(logits[fold])
        examples = inputs.read(calibrated, labels, from_logits=True)
    return examples._replace(weight=weights)


def measure(examples, num_bins, num_samples, seed):
    """A dict of `METRICS` to `Score`, and NLL, Brier and ECE^2 of resamples."""
    outcomes = inputs.top_labels(examples, None)
    confidence, correct, weights = outcomes
    marginal = binned.marginal_calibration_error(examples, None, num_bins)
    nll = scores.nll_of_examples(examples)
    brier = scores.brier_of_examples(examples)
    values = np.stack([nll, brier, correct, confidence - correct])
    # Examples are sorted by confidence, so that a bin is a range of them.
    order = np.argsort(confidence)
    edges = binned.inner_edges(confidence, num_bins, "equal_mass", weights)
    starts = np.unique(np.searchsorted(confidence[order], [0.0, *edges]))
    values, generator = values[:, order], np.random.default_rng(seed)
    rows, count = [], len(order)
    for sample in range(1 + num_samples):
        mass = weights[order]
        if sample > 0:
            # The same examples for all calibrators.
            drawn = generator.integers(count, size=count)
            mass = mass * np.bincount(drawn, minlength=count)[order]
        nll, brier, accuracy, _ = values @ mass / mass.sum()
        in_bins = np.maximum(np.add.reduceat(mass, starts), 1e-300)
        gaps = np.add.reduceat(mass * values[3], starts)
        square = np.sum(gaps**2 / in_bins) / mass.sum()
        rows.append([nll, brier, square, accuracy])
    rows = np.array(rows)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(rows[1:], [tail, 1 - tail], axis=0)
    # Resampling adds its own bias to a squared error; mirroring removes both.
    mirrored = 2 * rows[0, 2] - np.array([high[2], low[2]])
    low[2], high[2] = np.sqrt(np.maximum(mirrored, 0.0))
    found = rows[0].copy()
    found[2] = binned.calibration_error(outcomes, None, num_bins, debias=True)
    low, high = np.minimum(low, found), np.maximum(high, found)
    nll, brier, ece, accuracy = (
        Score(value, interval)
        for value, *interval in np.stack([found, low, high], axis=1).tolist()
    )
    all_scores = (nll, brier, ece, Score(marginal, None), accuracy)
    return dict(zip(METRICS, all_scores, strict=True)), rows[:, :3]


def _differences(resampled):
    """Differences without the bias of resampling, and their p-values."""
    pivots = 2 * resampled[0] - resampled[1:].mean(axis=0)
    deviations = resampled[1:].std(axis=0, ddof=1)
    # Equal examples decide nothing: their deviations are rounding errors.
    deviations[deviations <= 1e-12 * np.abs(pivots)] = np.inf
    # Counting resamples would need thousands for p-values that a correction
    # leaves small.
    return pivots, 2 * stats.norm.sf(np.abs(pivots) / deviations)


def holm(p_values):
    """Holm's correction of p-values for their number."""
    order = np.argsort(p_values)
    ordered = np.arange(len(order), 0, -1) * np.take(p_values, order)
    corrected = np.minimum(np.maximum.accumulate(ordered), 1.0)
    return corrected[np.argsort(order)]
