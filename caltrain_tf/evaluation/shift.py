"""The shift benchmark: results of a network on corrupted test sets."""

import collections
import csv
import functools
import io
import sys

import numpy as np
import tqdm

from caltrain_tf import files, metrics
from caltrain_tf.data.corruptions import NAMES, SEVERITIES
from caltrain_tf.data.corruptions import get as get_corruption
from caltrain_tf.data.shifted import GeneratedSets
from caltrain_tf.evaluation.predictions import (
    Inference,
    PredictionStore,
    weights_digest,
)
from caltrain_tf.evaluation.results import fit_calibrators
from caltrain_tf.experiments import statistics

COLUMNS = (
    "dataset",
    "corruption",
    "severity",
    "calibrator",
    "metric",
    "value",
)
# Name of the clean test set among corruptions, and of unscaled outputs among
# calibrators.
NONE = "none"
_METRICS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.negative_log_likelihood,
    "brier": metrics.brier_score,
    "ece": metrics.calibration_error,
}
_TITLES = {
    "ece": ("ECE (%)", 100, 2),
    "accuracy": ("accuracy (%)", 100, 2),
    "nll": ("NLL", 1, 3),
    "brier": ("Brier score", 1, 3),
}
# Mean errors of AlexNet on ImageNet-C, relative to which mCE is defined, and on
# clean images; Hendrycks and Dietterich, 2019, appendix C.
_ALEXNET_ERRORS = dict(
    zip(
        NAMES,
        (
            *(0.886, 0.894, 0.923, 0.820, 0.826, 0.786, 0.798, 0.867),
            *(0.827, 0.819, 0.565, 0.853, 0.646, 0.718, 0.607),
        ),
        strict=True,
    )
)
_ALEXNET_CLEAN_ERROR = 0.4348


def evaluate_shift(
    model,
    data,
    *,
    sets=None,
    corruptions=NAMES,
    severities=SEVERITIES,
    batch_size=256,
    num_examples=None,
    calibrators=None,
    predictions_dir=None,
    keep_predictions="float32",
    description=None,
    strategy=None,
    batches_per_call=None,
    verbose=False,
):
    """Measures a network on its clean test split and under shift.

    Only the predictions and a few batches of one corrupted set are in memory at
    a time. Temperatures are fitted to the clean calibration split, never to
    shifted data.

    Args:
        model: A Keras model, or a function from a batch of images to logits.
            With several replicas, create it inside `strategy.scope()`.
        data: An `ImageData` (`ct.data.get`), or an `ArrayData` of your own
            images.
        sets: The corrupted sets, as returned by `ct.data.shifted_sets`;
            generated on the fly when not given.
        corruptions: Names of corruptions.
        severities: Severities, from 1 to 5.
        batch_size: Batch size for inference.
        num_examples: Number of examples to use, from the start of each test
            set; all by default.
        calibrators: Fitted calibrators by name; `"ts"` and `"ts_sb_ece"` when
            not given.
        predictions_dir: A folder for `calibration.npz`, `test.npz` and
            `<corruption>_<severity>.npz`. Stored predictions are not computed
            again, as long as the model's weights, the sets and `description`
            are the same and the network reproduces the first clean predictions.
        keep_predictions: How to store the predictions of corrupted sets:
            `"float32"`; `"float16"`, which takes half the space, and results
            are those of the rounded predictions; or `"no"`, and an interrupted
            run computes all of them again. On ImageNet-C they take 15 GB in
            float32.
        description: What the predictions depend on beyond the arguments of this
            function, of JSON types. It distinguishes functions without weights.
        strategy: The `tf.distribute.Strategy` whose replicas share each batch;
            the current one if None. With several workers, the first one writes.
        batches_per_call: How many batches the network processes in one call. If
            None, 8 with an accelerator and 1 without.
        verbose: Whether to show progress.

    Returns:
        Rows, dictionaries with the keys `dataset`, `corruption`, `severity`,
        `calibrator`, `metric` and `value`. The clean test set has the
        corruption `"none"` and severity 0. The metrics are `accuracy`, `nll`,
        `brier` and `ece`, which is l2 over 15 bins of equal mass.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> images = rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        >>> labels = (images.mean((1, 2, 3)) > 127.5).astype(int)
        >>> data = ct.data.ArrayData(
        ...     "mine",
        ...     {
        ...         "calibration": (images[:20], labels[:20]),
        ...         "test": (images[20:], labels[20:]),
        ...     },
        ... )
        >>> def network(images):
        ...     bright = 20 * (tf.reduce_mean(images, [1, 2, 3]) - 0.49)
        ...     return tf.stack([-bright, bright], axis=1)
        >>> rows = ct.evaluation.evaluate_shift(
        ...     network, data, corruptions=["brightness"], severities=[1, 5]
        ... )
        >>> len(rows)  # 3 sets, 3 calibrators, 4 metrics
        36
    """
    sets = GeneratedSets(data) if sets is None else sets
    shifts = [(name, level) for name in corruptions for level in severities]
    # Invalid names raise here, before stored predictions are removed.
    for name, level in shifts:
        get_corruption(name, level)
    count = sets.num_examples
    if num_examples is not None:
        if num_examples < 1:
            raise ValueError(
                "`num_examples` must be at least 1. "
                f"Received: num_examples={num_examples}"
            )
        count = min(count, num_examples)
    inference = Inference(model, strategy, batches_per_call)
    store = PredictionStore(
        predictions_dir,
        {
            "source": sets.source,
            "num_examples": count,
            "weights": weights_digest(model),
            **(description or {}),
        },
        keep_predictions,
        is_chief=inference.shard[0] == 0,
    )

    def clean(split):
        def predict(count=None):
            return inference.predict(
                functools.partial(data.eval_batches, split), batch_size, count
            )

        return store.clean(
            split,
            predict,
            lambda logits, labels: (
                len(labels) == data.num_examples[split]
                and _same(predict(batch_size), (logits, labels))
            ),
        )

    if calibrators is None:
        calibrators = fit_calibrators(*clean("calibration"))
    logits, labels = clean("test")
    rows = _rows(
        data.name, NONE, 0, logits[:count], labels[:count], calibrators
    )
    # Outside a terminal, progress is a new line every ten seconds.
    interval = 0.1 if sys.stderr.isatty() else 10
    for shift in tqdm.tqdm(
        shifts,
        "corrupted sets",
        disable=not verbose,
        mininterval=interval,
        unit="set",
    ):
        predictions = store.shifted(*shift)
        if predictions is None:
            predictions = inference.predict(
                functools.partial(sets.batches, *shift), batch_size, count
            )
            predictions = store.keep_shifted(*shift, *predictions)
        rows += _rows(data.name, *shift, *predictions, calibrators)
    return rows


def shift_csv(rows):
    """Returns rows as the text of `shift.csv`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_shift_csv(path):
    """Reads the rows of a `shift.csv`.

    Args:
        path: The file, local or in a bucket.

    Returns:
        Rows as returned by `evaluate_shift`.
    """
    text = files.as_path(path).read_text()
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise ValueError(
            f"`path` must be a file with the columns {COLUMNS}. "
            f"Received: {reader.fieldnames} in {path}"
        )
    return [
        {
            **row,
            "severity": int(row["severity"]),
            "value": float(row["value"]),
        }
        for row in reader
    ]


def means_by_severity(rows, metric="ece"):
    """Returns means over corruptions for each severity and calibrator.

    Args:
        rows: Rows of one run, as `evaluate_shift` returns them.
        metric: Name of the metric.

    Returns:
        Dictionaries with `severity`, `calibrator`, `mean`, `error` and
        `count`. The error is `masson_loftus_error` over corruptions and
        calibrators; NaN with fewer than two of either, as for the clean test
        set.
    """
    tables = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in rows:
        if row["metric"] == metric:
            column = tables[row["severity"]][row["calibrator"]]
            if row["corruption"] in column:
                raise ValueError(
                    "`rows` must be of one run, with one value of each set. "
                    f"Received: two of {_named(row)}"
                )
            column[row["corruption"]] = row["value"]
    if not tables:
        raise ValueError(
            f"`rows` must hold the metric. Received: metric={metric!r}"
        )
    means = []
    for severity, table in sorted(tables.items()):
        values = _columns(table, severity)
        error = float("nan")
        if min(values.shape) > 1:
            error = statistics.masson_loftus_error(values.T)
        for calibrator, column in zip(table, values, strict=True):
            means.append(
                {
                    "severity": severity,
                    "calibrator": calibrator,
                    "mean": float(column.mean()),
                    "error": error,
                    "count": len(column),
                }
            )
    return means


def compare_runs(runs, metric="ece", calibrator="none"):
    """Returns means over the runs of each training objective.

    Runs must have the same data set, corruptions and severities; otherwise
    their means are not comparable.

    Args:
        runs: Pairs of an objective's name and the rows of one of its runs.
        metric: Name of the metric.
        calibrator: Name of the calibrator.

    Returns:
        Dictionaries with `severity`, `objective`, `mean`, `error` and `count`:
        the mean over runs (seeds) of the mean over corruptions, its standard
        error, and the number of runs.
    """
    _check_same_sets(runs)
    values = collections.defaultdict(list)
    for objective, rows in runs:
        for row in means_by_severity(rows, metric):
            if row["calibrator"] == calibrator:
                values[row["severity"], objective].append(row["mean"])
    return [
        {
            "severity": severity,
            "objective": objective,
            "mean": float(np.mean(means)),
            "error": statistics.standard_error(means),
            "count": len(means),
        }
        for (severity, objective), means in sorted(values.items())
    ]


def severity_table(rows):
    """Returns a table for the terminal: means over corruptions by severity.

    Args:
        rows: Rows of one run, as `evaluate_shift` returns them.
    """
    severities = sorted({row["severity"] for row in rows})
    heads = [f"severity {level}" if level else "clean" for level in severities]
    lines = [
        f"{'mean over corruptions':<24}"
        + "".join(f"{head:>14}" for head in heads)
    ]
    for metric, (title, factor, digits) in _TITLES.items():
        cells = collections.defaultdict(list)
        for row in means_by_severity(rows, metric):
            text = f"{factor * row['mean']:.{digits}f}"
            if metric == "ece" and row["error"] == row["error"]:
                text += f" ± {factor * row['error']:.{digits}f}"
            cells[row["calibrator"]].append(text)
        for calibrator, texts in cells.items():
            # Scaling by a temperature does not change the accuracy.
            if metric == "accuracy" and calibrator != NONE:
                continue
            label = title
            if metric != "accuracy":
                scaling = calibrator.replace("_", "-").upper()
                label += ", " + (
                    "no scaling" if calibrator == NONE else scaling
                )
            lines.append(
                f"{label:<24}" + "".join(f"{text:>14}" for text in texts)
            )
    if any("±" in line for line in lines):
        lines.append(
            "± is one standard error within corruptions (Masson and Loftus): "
            "how much one calibrator\nis ahead of another varies by that over "
            "corruptions. It is pooled, so that all calibrators\nof a severity "
            "share it; how hard a corruption is does not count."
        )
    return "\n".join(lines)


def robustness_report(rows, generated=False):
    """Returns the contents of `robustness_metrics.json`.

    Keys have the format of the reports of robustness_metrics, with the
    calibrator's name after the metric's: `cifar10/ece`, `cifar10_c/ece/mean`,
    `cifar10_c/ece_ts/std`. For ImageNet there are also `imagenet_c/mce` and its
    parts, if `rows` has all corruptions and severities of the published sets.
    `ece` is that of this package, l2 over bins of equal mass.

    Args:
        rows: Rows of one run, as `evaluate_shift` returns them.
        generated: Whether the corrupted sets are generated. mCE is defined for
            the published ones alone.
    """
    report = {}
    shifted = collections.defaultdict(list)
    for row in rows:
        suffix = "" if row["calibrator"] == NONE else f"_{row['calibrator']}"
        metric = f"{row['metric']}{suffix}"
        if row["corruption"] == NONE:
            report[f"{row['dataset']}/{metric}"] = row["value"]
        elif row["corruption"] in NAMES:
            shifted[f"{row['dataset']}_c/{metric}"].append(row["value"])
    for key, values in shifted.items():
        report[f"{key}/mean"] = float(np.mean(values))
        report[f"{key}/std"] = float(np.std(values))
        report[f"{key}/count"] = len(values)
    if not generated and any(row["dataset"] == "imagenet" for row in rows):
        report.update(_corruption_errors(rows))
    return report


def _same(first, stored):
    """Returns whether `stored` starts with the predictions, up to rounding."""
    logits, labels = first
    expected, expected_labels = (array[: len(labels)] for array in stored)
    if logits.shape != expected.shape or (labels != expected_labels).any():
        return False
    # Processors and precisions differ by less than this, networks by more.
    gap = np.abs(logits - expected).mean()
    return gap <= 0.02 * max(np.std(expected), 1e-6)


def _rows(dataset, corruption, severity, logits, labels, calibrators):
    outputs = {NONE: logits}
    for name, calibrator in calibrators.items():
        outputs[name] = calibrator.transform(logits)
    return [
        dict(
            zip(
                COLUMNS,
                (dataset, corruption, severity, name, metric, value),
                strict=True,
            )
        )
        for name, scaled in outputs.items()
        for metric, function in _METRICS.items()
        for value in [float(function(scaled, labels, from_logits=True))]
    ]


def _columns(table, severity):
    """Returns values `(calibrators, corruptions)` in the same order."""
    (first, column), *others = table.items()
    for name, other in others:
        if set(other) != set(column):
            raise ValueError(
                "`rows` must hold the same corruptions for each calibrator. "
                f"Received: at severity {severity}, {sorted(column)} for "
                f"{first!r}, {sorted(other)} for {name!r}"
            )
    return np.array(
        [[other[key] for key in column] for other in table.values()]
    )


def _named(row):
    keys = ("corruption", "severity", "calibrator", "metric")
    return ", ".join(f"{key}={row[key]!r}" for key in keys)


def _check_same_sets(runs):
    if not runs:
        raise ValueError("`runs` must hold at least one run. Received: none")
    (first, rows), *others = runs
    for name, other in others:
        for what, keys in (
            ("data set", ("dataset",)),
            ("corruptions and severities", ("corruption", "severity")),
        ):
            here, there = (
                {tuple(row[key] for key in keys) for row in part}
                for part in (rows, other)
            )
            if here != there:
                raise ValueError(
                    f"`runs` must share their {what}. Received: {first!r} "
                    f"with {_list(here - there)} that {name!r} has not, which "
                    f"has {_list(there - here)} instead"
                )


def _list(keys, shown=3):
    """Returns the first few keys as text."""
    texts = [" ".join(map(str, key)) for key in sorted(keys)]
    more = [f"{len(texts) - shown} more"] if len(texts) > shown else []
    return ", ".join(texts[:shown] + more) or "nothing"


def _corruption_errors(rows):
    errors = collections.defaultdict(list)
    for row in rows:
        if row["metric"] == "accuracy" and row["calibrator"] == NONE:
            errors[row["corruption"]].append(1 - row["value"])
    if any(len(errors[name]) != 5 for name in NAMES):
        return {}
    (clean,) = errors[NONE]
    report, ratios, relative = {}, [], []
    for name in NAMES:
        error, alexnet = np.mean(errors[name]), _ALEXNET_ERRORS[name]
        ratios.append(float(error / alexnet))
        gap = alexnet - _ALEXNET_CLEAN_ERROR
        relative.append(float((error - clean) / gap))
        report[f"imagenet_c/{name}/ce"] = ratios[-1]
        report[f"imagenet_c/{name}/relative_ce"] = relative[-1]
    report["imagenet_c/mce"] = float(np.mean(ratios))
    report["imagenet_c/relative_mce"] = float(np.mean(relative))
    return report
