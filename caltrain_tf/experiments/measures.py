"""The results of a finished run, as in `results.json`."""

from functools import partial

import pandas as pd
from scipy import special

from caltrain_tf import metrics, posthoc
from caltrain_tf.experiments import figures, tables


def _confidence(logits, labels, from_logits):
    return special.softmax(logits, axis=-1).max(axis=-1).mean()


CALIBRATORS = {"ts": "nll", "ts_sb_ece": "sb_ece"}
_METRICS = {
    "accuracy": metrics.accuracy,
    "confidence": _confidence,
    "nll": metrics.negative_log_likelihood,
    "brier": metrics.brier_score,
    "ece": metrics.calibration_error,
    "ece_debiased": partial(metrics.calibration_error, debias=True),
    # As in the paper's table of memorised training sets.
    "ece_l1": partial(metrics.calibration_error, norm=1, binning="equal_width"),
    "ks_error": metrics.ks_error,
    "mean_sweep_ce": metrics.mean_sweep_calibration_error,
    "marginal_ece": metrics.marginal_calibration_error,
    # On the scale of the paper's table.
    "marginal_ece_sum": partial(
        metrics.marginal_calibration_error, reduce="sum"
    ),
    "smooth_ece": metrics.smooth_calibration_error,
    "average_uncertainty": metrics.average_uncertainty,
}
_NOTE = """\
Lower is better, but for the temperature. TS divides the logits by a temperature
that is fitted to the calibration split by NLL, TS-SB-ECE by one that is fitted
by the soft-binned ECE. ECE is l2 over 15 bins of equal mass."""


def fit_calibrators(logits, labels):
    """Fits TS and TS-SB-ECE, as the paper does, to the calibration split."""
    return {
        name: posthoc.TemperatureScaling(objective).fit(logits, labels)
        for name, objective in CALIBRATORS.items()
    }


def measure(logits, labels, names=tuple(_METRICS)):
    """Returns accuracy, NLL, ECE and other measures by name."""
    pair = logits, labels
    return {k: float(_METRICS[k](*pair, from_logits=True)) for k in names}


def final_results(test, calibrators, train=None):
    """Returns the contents of `results.json` from `(logits, labels)`."""
    logits, labels = test
    results = measure(logits, labels)
    if train is not None:
        keys = ("accuracy", "confidence", "ece_l1")
        measured = measure(*train, keys)
        results |= {f"train_{key}": value for key, value in measured.items()}
        ratio = results["ece_l1"] / max(results["train_ece_l1"], 1e-12)
        results["test_to_train_ece_l1"] = ratio
    for name, calibrator in calibrators.items():
        keys = ("ece", "nll", "brier", "ks_error", "mean_sweep_ce")
        scaled = measure(calibrator.transform(logits), labels, keys)
        results |= {f"{key}_{name}": value for key, value in scaled.items()}
        results[f"temperature_{name}"] = float(calibrator.temperature_)
    return results


def results_table(results):
    """Returns the main results as a table for the terminal, with a note."""
    keys = ("ece", "ks_error", "mean_sweep_ce", "nll", "brier", "temperature")
    results = {"temperature": 1, **results}
    columns = {
        figures.calibrator_label(ending.strip("_") or "none"): [
            tables.text_of(results[key + ending], metric=key) for key in keys
        ]
        for ending in ("", "_ts", "_ts_sb_ece")
    }
    table = pd.DataFrame(columns, index=map(figures.metric_label, keys))
    return (
        f"accuracy {results['accuracy']:.2%}, marginal ECE "
        f"{results['marginal_ece']:.2%}, average uncertainty "
        f"{results['average_uncertainty']:.3f} nats\n"
        f"{table.to_string(col_space=11)}\n\n{_NOTE}"
    )
