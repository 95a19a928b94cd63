"""One call that says whether a classifier is calibrated, and what to do."""

import dataclasses
import html
import itertools
import warnings

import numpy as np

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned, decomposition, scores, subsets

# Imports of `posthoc` and of `scipy.stats` are inside functions, so that
# `import caltrain_tf` does not wait for them.

LEVEL = 0.05
# Rows of the tables of classes and groups that are printed.
MOST_ROWS = 5
# How many times more one direction must weigh to be the verdict.
MOST = 3
PARTS = (
    "{score:.4f} = {miscalibration:.4f} miscalibration - "
    "{discrimination:.4f} discrimination + {uncertainty:.4f} uncertainty"
)


def diagnose(
    probs,
    labels,
    from_logits=False,
    *,
    groups=None,
    num_bins=15,
    num_draws=1000,
    seed=0,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Says whether a classifier is calibrated, how sure that is, what to do.

    - Accuracy, NLL and Brier score, with the parts of the latter two: see
      `metrics.score_decomposition`.
    - The ECE (l2, bins of equal mass), a 95% interval of the true calibration
      error, and the ECE and p-value of `metrics.calibration_test`.
    - Whether it is over- or under-confident, and in which range of confidence,
      for which predicted classes, in which groups, with p-values corrected for
      their number (Holm). For binary problems, the p-value and the ranges are
      of the probability of class 1.
    - What `posthoc.AutoCalibration` would gain, out of fold.

    Use examples that the classifier was not trained on.

    Args:
        probs, labels: As in `metrics.calibration_error`.
        from_logits: Whether `probs` holds logits.
        groups: The group of each example, `(...)` or of its first axes.
        num_bins: Number of bins.
        num_draws: Number of sets of labels that are drawn for the test, and of
            bootstrap samples.
        seed: Seed of draws, samples and folds.
        multi_label, ignore_class, sample_weight: As in the metrics.

    Returns:
        A `Diagnosis`, which prints.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> logits = 2 * rng.normal(size=(500, 3))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> print(ct.diagnose(2 * logits, labels, from_logits=True))
        Not calibrated: over-confident (p = 0.001).
        ...
        >>> ct.diagnose(logits, labels, from_logits=True).verdict
        'No sign of miscalibration (p = ...).'
    """
    num_bins = checks.count("num_bins", num_bins)
    num_draws = checks.count("num_draws", num_draws, low=2)
    seed = checks.count("seed", seed, low=0)
    examples = inputs.read(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    top = inputs.top_labels(examples, None)
    if len(top.correct) < 2:
        raise ValueError(
            "`probs` must hold at least 2 examples that count. Received: 1"
        )
    # The probability of class 1, or else the confidence of the predicted class.
    judged = decomposition.outcomes(examples, None)
    num_classes = max(examples.predictions.shape[1], 2)
    draws = {"num_draws": num_draws, "seed": seed, "num_bins": num_bins}
    test = test_of_top = decomposition.calibration_test(top, None, **draws)
    if num_classes == 2:
        test = decomposition.calibration_test(judged, None, **draws)
    (predicted,) = examples.map(lambda block, _: (block.argmax(axis=1),))
    by_class = [(str(k), predicted == k) for k in np.unique(predicted)]
    by_group = []
    if groups is not None:
        rows = subsets.rows_of_groups(examples, groups)
        by_group = [(subsets.group_text(k), rows[k]) for k in rows]
    ece, interval, remedy = _recalibrated(examples, not from_logits, **draws)
    return Diagnosis(
        num_examples=len(top.correct),
        num_classes=num_classes,
        accuracy=scores.accuracy(top, None),
        confidence=scores.mean(top.confidence, top.weight),
        nll=scores.negative_log_likelihood(examples, None),
        brier=scores.brier_score(examples, None),
        parts={
            k: decomposition.score_decomposition(judged, None, k)._asdict()
            for k in decomposition.SCORES
        },
        ece=test_of_top.value,
        ece_if_calibrated=test_of_top.expected,
        p_value=test.p_value,
        ece_debiased=ece,
        ece_interval=interval,
        remedy=remedy,
        ranges=_ranges(judged, num_bins),
        classes=_largest_first(_gaps(by_class, top)),
        groups=_largest_first(_gaps(by_group, top)),
        outcomes=top,
    )


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`. Prints, also in notebooks.

    `brier` is a sum over the classes, and `parts` holds the `"brier"` and
    `"nll"` of `score_decomposition`. `ece` is `calibration_error`,
    `ece_if_calibrated` what it would be by chance, and `ece_debiased` an
    estimate of the true error, with the 95% interval `ece_interval`. `p_value`
    is that of a calibrated classifier. The lists of dicts `ranges`, with a
    significant gap, `classes` and `groups`, the largest gap first, say where it
    is not; `remedy`, what `AutoCalibration` chooses, why, the NLL and ECE
    before and after it, out of fold, and whether the NLL falls by more than
    chance.
    """

    num_examples: int
    num_classes: int
    accuracy: float
    confidence: float
    nll: float
    brier: float
    parts: dict
    ece: float
    ece_if_calibrated: float
    ece_debiased: float
    ece_interval: tuple
    p_value: float
    ranges: list
    classes: list
    groups: list
    remedy: dict
    outcomes: tuple = dataclasses.field(repr=False)

    @property
    def is_calibrated(self):
        """Whether the test finds no miscalibration at 5%."""
        return self.p_value >= LEVEL

    @property
    def direction(self):
        """Such as `"over-confident"`; empty if it is calibrated."""
        if not self.ranges and self.is_calibrated:
            return ""
        over, under = (
            sum(max(sign * row["gap"], 0) * row["count"] for row in self.ranges)
            for sign in (1, -1)
        )
        if self.num_classes == 2 and (over == 0) != (under == 0):
            side = "high" if over else "low"
            return f"probabilities of class 1 are too {side}"
        if self.num_classes == 2 or not self.ranges:
            gap = self.confidence - self.accuracy
            over, under = max(gap, 0), max(-gap, 0)
        larger = "over-confident" if over > under else "under-confident"
        if min(over, under) == 0:
            return larger
        if max(over, under) > MOST * min(over, under):
            return f"mostly {larger}"
        return "over- and under-confident, in different ranges"

    @property
    def verdict(self):
        """The first sentence."""
        if self.is_calibrated:
            return f"No sign of miscalibration (p = {self.p_value:.2g})."
        return f"Not calibrated: {self.direction} (p = {self.p_value:.2g})."

    @property
    def advice(self):
        """The last sentence."""
        remedy, name = self.remedy, self.remedy["calibrator"]
        if remedy["choice"] == "none":
            return f"Do nothing: {remedy['reason']}"
        nll = "out of fold, NLL {nll_before:.4f} becomes {nll_after:.4f}"
        nll = nll.format(**remedy)
        if self.is_calibrated and not remedy["gain_is_clear"]:
            return f"Do nothing: with {name}, {nll}, which may be chance."
        rises = remedy["ece_after"] > remedy["ece_before"]
        return (
            f"Fit {name} (`ct.posthoc.AutoCalibration`): {nll} "
            f"{'but' if rises else 'and'} debiased ECE "
            f"{remedy['ece_before']:.4f} becomes {remedy['ece_after']:.4f}."
        )

    def to_dict(self):
        """Returns the numbers and the text as a dict for JSON."""
        values = dataclasses.asdict(self)
        del values["outcomes"]
        values["ece_interval"] = list(self.ece_interval)
        names = "is_calibrated", "direction", "verdict", "advice"
        return values | {name: getattr(self, name) for name in names}

    def figure(self):
        """Returns a reliability diagram, a `matplotlib.figure.Figure`."""
        from caltrain_tf import figures

        title = None if self.is_calibrated else self.direction.split(",")[0]
        return figures.reliability_diagram(self.outcomes, None, title=title)

    def _lines(self):
        """Pairs of a heading and its text."""
        low, high = self.ece_interval
        binary = self.num_classes == 2
        yield "Examples", f"{self.num_examples:,} of {self.num_classes} classes"
        mean = f"mean confidence {self.confidence:.4f}"
        yield "Accuracy", f"{self.accuracy:.4f}, {mean}"
        yield "NLL, Brier score", f"{self.nll:.4f}, {self.brier:.4f}"
        judged = "class 1" if binary else "the predicted class"
        for score, name in (("nll", "NLL"), ("brier", "Brier score")):
            yield f"{name} of {judged}", PARTS.format(**self.parts[score])
        chance = f"by chance {self.ece_if_calibrated:.4f}"
        debiased = f"debiased {self.ece_debiased:.4f} [{low:.4f}, {high:.4f}]"
        yield "ECE", f"{self.ece:.4f}; {chance}; {debiased}"
        for row in self.ranges:
            head = "Probability of 1," if binary else "Confidence"
            yield f"{head} {row['name']}", _gap_text(row, binary)
        for plural, head, table in (
            ("Predicted classes", "Predicted class", self.classes),
            ("Groups", "Group", self.groups),
        ):
            clear = [row for row in table if row["p_value"] < LEVEL]
            for row in clear[:MOST_ROWS]:
                yield f"{head} {row['name']}", _gap_text(row)
            if table and not clear:
                yield plural, f"none of {len(table)} stands out"
            if len(clear) > MOST_ROWS:
                few = f"these {MOST_ROWS} have the largest gaps"
                yield plural, f"{len(clear)} of {len(table)} stand out; {few}"

    def __str__(self):
        """Returns the text."""
        lines = list(self._lines())
        width = max(len(head) for head, _ in lines)
        rows = [f"  {head:<{width}}  {text}" for head, text in lines]
        return "\n".join([self.verdict, *rows, self.advice])

    def _repr_html_(self):
        """Returns the text as a table, for notebooks."""
        rows = "".join(
            f"<tr><th>{html.escape(head)}</th><td>{html.escape(text)}</td></tr>"
            for head, text in self._lines()
        )
        return (
            f"<p><b>{html.escape(self.verdict)}</b></p><table>{rows}</table>"
            f"<p>{html.escape(self.advice)}</p>"
        )


def _gap_text(row, of_class_1=False):
    side = "below" if row["gap"] > 0 else "above"
    names = ("share", "mean") if of_class_1 else ("accuracy", "confidence")
    return (
        f"{names[0]} {row['accuracy']:.4f}, {100 * abs(row['gap']):.1f} points "
        f"{side} the {names[1]} {row['confidence']:.4f} "
        f"({row['count']:,} examples, p = {row['p_value']:.2g})"
    )


def _gaps(parts, outcomes):
    """A row of confidence, accuracy and their gap for each name and part."""
    from caltrain_tf.posthoc.compare import holm

    table = [_gap(name, *outcomes.rows(rows)) for name, rows in parts]
    p_values = holm([row["p_value"] for row in table]).tolist()
    pairs = zip(table, p_values, strict=True)
    return [row | {"p_value": p_value} for row, p_value in pairs]


def _largest_first(rows):
    return sorted(rows, key=lambda row: -abs(row["gap"]))


def _gap(name, confidence, correct, weight=None):
    """A row of `_gaps`, with a two-sided p-value of the gap."""
    from scipy import stats

    weight = np.ones(len(correct)) if weight is None else weight
    weight = weight / weight.sum()
    confidence = confidence.astype(np.float64)
    gap = float(weight @ (confidence - correct))
    variance = confidence * (1 - confidence)
    # The number of right predictions is a sum of independent draws, close to a
    # gamma distribution of their variance and skewness (Pearson's type III).
    # Confidences of 0 and 1 alone have no deviation.
    deviation = max(np.sqrt(weight**2 @ variance), 1e-12)
    skewness = weight**3 @ (variance * (1 - 2 * confidence)) / deviation**3
    # More right predictions than expected are a negative gap.
    skewness = -skewness if gap > 0 else skewness
    # Half of a step between two possible sums.
    size = max(abs(gap) - 0.5 * weight @ weight, 0.0) / deviation
    p_value = min(2 * float(stats.pearson3.sf(size, skewness)), 1.0)
    return {
        "name": name,
        "count": len(confidence),
        "confidence": float(weight @ confidence),
        "accuracy": float(weight @ correct),
        "gap": gap,
        "p_value": p_value,
    }


def _ranges(outcomes, num_bins):
    """Rows of bins with a significant gap; neighbours of one sign are one."""
    p = outcomes.confidence
    edges = binned.inner_edges(p, num_bins, "equal_mass", outcomes.weight)
    # Ties may leave bins empty.
    _, index = np.unique(binned.bin_indices(p, edges), return_inverse=True)
    bins = [(k, index == k) for k in range(index.max() + 1)]
    found = []
    for sign, run in itertools.groupby(
        _gaps(bins, outcomes),
        lambda row: (row["p_value"] < LEVEL) * np.sign(row["gap"]),
    ):
        run = list(run)
        if sign == 0:
            continue
        inside = np.isin(index, [row["name"] for row in run])
        low, high = float(p[inside].min()), float(p[inside].max())
        p_value = min(row["p_value"] for row in run)
        row = _gap(f"{low:.4f} to {high:.4f}", *outcomes.rows(inside))
        found.append(row | {"low": low, "high": high, "p_value": p_value})
    return found


def _recalibrated(examples, from_probs, num_draws, seed, num_bins):
    """The debiased ECE, its interval, and the gain of recalibration."""
    from caltrain_tf.posthoc import auto, base
    from caltrain_tf.posthoc.compare import NOTHING, measure, out_of_fold

    logits, labels, weights = base.arrays_of(examples, from_probs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        calibrator = auto.AutoCalibration().fit(logits, labels, weights)
    chosen = calibrator.calibrator_ if calibrator.choice_ != NOTHING else None
    folds = base.folds(labels, min(5, len(labels)), seed)
    (before, drawn_before), (after, drawn_after) = (
        measure(
            out_of_fold(each, logits, labels, weights, folds),
            num_bins,
            num_draws,
            seed,
        )
        for each in (None, chosen)
    )
    change_of_nll = (drawn_after - drawn_before)[1:, 0]
    remedy = {
        "choice": calibrator.choice_,
        "calibrator": type(calibrator.calibrator_).__name__,
        "reason": calibrator.reason_,
        "nll_before": before["nll"].value,
        "nll_after": after["nll"].value,
        "ece_before": before["ece"].value,
        "ece_after": after["ece"].value,
        "gain_is_clear": bool(np.quantile(change_of_nll, 0.975) < 0),
    }
    return before["ece"].value, before["ece"].interval, remedy
