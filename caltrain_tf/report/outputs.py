"""What a report needs of the predictions of a run."""

import os

from caltrain_tf import evaluation
from caltrain_tf import metrics
from caltrain_tf import posthoc


def load_splits(folder):
    """Reads the predictions of a run.

    Args:
        folder: Of the run.

    Returns:
        `(logits, labels)` of `"calibration"` and `"test"`.
    """
    return {
        split: evaluation.load_predictions(
            os.path.join(folder, "predictions", f"{split}.npz")
        )
        for split in ("calibration", "test")
    }


def reliability_rows(splits):
    """Reliability of a run's test split before and after scaling.

    Args:
        splits: Of `load_splits`.

    Returns:
        Dictionaries with `calibrator`, `bin`, `confidence`, `accuracy` and
        `count`, of 15 bins of equal width; NaN where a bin is empty.
    """
    calibrators = evaluation.fit_calibrators(*splits["calibration"])
    logits, labels = splits["test"]
    outputs = {"none": logits}
    for name, calibrator in calibrators.items():
        outputs[name] = calibrator.transform(logits)
    rows = []
    for name, scaled in outputs.items():
        curve = metrics.reliability_curve(
            scaled, labels, binning="equal_width", from_logits=True
        )
        rows += [
            {
                "calibrator": name,
                "bin": index,
                "confidence": float(confidence),
                "accuracy": float(accuracy),
                "count": int(count),
            }
            for index, (confidence, accuracy, count) in enumerate(
                zip(*curve, strict=True)
            )
        ]
    return rows


def dirichlet_results(splits):
    """Accuracy, ECE and NLL of the test split after Dirichlet calibration.

    Args:
        splits: Of `load_splits`.

    Returns:
        `accuracy_dirichlet`, `ece_dirichlet` and `nll_dirichlet`.
    """
    calibrator = posthoc.DirichletCalibration().fit(*splits["calibration"])
    logits, labels = splits["test"]
    measured = evaluation.measure(calibrator.transform(logits), labels)
    return {
        f"{key}_dirichlet": measured[key] for key in ("accuracy", "ece", "nll")
    }
