"""What is written and printed of the shift benchmark."""

import collections

import numpy as np

from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.evaluation.shift import NONE
from caltrain_tf.evaluation.statistics import means_by_severity

_TITLES = {
    "ece": ("ECE (%)", 100, 2),
    "accuracy": ("accuracy (%)", 100, 2),
    "nll": ("NLL", 1, 3),
    "brier": ("Brier score", 1, 3),
}
# Mean errors of AlexNet on ImageNet-C, which mCE is relative to, and on clean
# images; Hendrycks and Dietterich, 2019, appendix C.
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


def severity_table(rows):
    """Returns a table for the terminal: means over corruptions by severity.

    Args:
        rows: Of `evaluate_shift`, of one run.
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
            # No calibrator changes what a temperature leaves as it is.
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
    return "\n".join(lines)


def robustness_report(rows):
    """Returns the figures of `robustness_metrics.json`.

    Keys are as the reports of robustness_metrics print them, with the
    calibrator's name after the metric's: `cifar10/ece`, `cifar10_c/ece/mean`,
    `cifar10_c/ece_ts/std`; for ImageNet also `imagenet_c/mce` and its parts,
    where all corruptions and severities are there. `ece` is this package's, l2
    over bins of equal mass.

    Args:
        rows: Of `evaluate_shift`, of one run.
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
    if any(row["dataset"] == "imagenet" for row in rows):
        report.update(_corruption_errors(rows))
    return report


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
