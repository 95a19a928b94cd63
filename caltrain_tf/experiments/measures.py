"""The results of a finished run, as in `results.json`."""

from caltrain_tf import metrics, posthoc

CALIBRATORS = {"ts": "nll", "ts_sb_ece": "sb_ece"}
_LEGEND = """\
none       the network as it was trained
TS         its logits divided by a temperature, which is chosen by the
           likelihood of the calibration split
TS-SB-ECE  the same, chosen by the soft-binned calibration error instead
Lower is better in every row but the last. ECE, KS error and mean-sweep CE are
distances between confidence and accuracy; ECE is l2 over 15 bins of equal mass.
A temperature below 1 raises the confidence of an under-confident network, one
above 1 lowers that of an over-confident one."""


def fit_calibrators(logits, labels):
    """Fits TS and TS-SB-ECE, as the paper does, to the calibration split."""
    return {
        name: posthoc.TemperatureScaling(objective=objective).fit(
            logits, labels
        )
        for name, objective in CALIBRATORS.items()
    }


def measure(logits, labels):
    """Returns accuracy, NLL, ECE and other measures by name."""
    measures = {
        "accuracy": metrics.accuracy,
        "nll": metrics.negative_log_likelihood,
        "brier": metrics.brier_score,
        "ece": metrics.calibration_error,
        "ks_error": metrics.ks_error,
        "mean_sweep_ce": metrics.mean_sweep_calibration_error,
        "marginal_ece": metrics.marginal_calibration_error,
        "smooth_ece": metrics.smooth_calibration_error,
        "average_uncertainty": metrics.average_uncertainty,
    }
    return {
        name: function(logits, labels, from_logits=True)
        for name, function in measures.items()
    }


def final_results(test, calibrators):
    """Returns the contents of `results.json`, a flat dictionary.

    `test` is `(logits, labels)` of the test split. Beside `accuracy`, `ece` and
    so on there are `ece_ts`, `nll_ts`, `temperature_ts` for each calibrator.
    """
    logits, labels = test
    results = measure(logits, labels)
    for name, calibrator in calibrators.items():
        scaled = measure(calibrator.transform(logits), labels)
        for key in ("ece", "nll", "brier", "ks_error", "mean_sweep_ce"):
            results[f"{key}_{name}"] = scaled[key]
        results[f"temperature_{name}"] = float(calibrator.temperature_)
    return results


def results_table(results):
    """Returns the main results as a table for the terminal, with a legend."""
    rows = [
        ("", "none", *(name.upper().replace("_", "-") for name in CALIBRATORS))
    ]
    for label, key, percent in (
        ("ECE (%)", "ece", True),
        ("KS error (%)", "ks_error", True),
        ("mean-sweep CE (%)", "mean_sweep_ce", True),
        ("NLL", "nll", False),
        ("Brier score", "brier", False),
    ):
        values = [results[key], *(results[f"{key}_{c}"] for c in CALIBRATORS)]
        form = (
            (lambda v: f"{100 * v:.2f}") if percent else (lambda v: f"{v:.4f}")
        )
        rows.append((label, *map(form, values)))
    temperatures = [results[f"temperature_{c}"] for c in CALIBRATORS]
    rows.append(("temperature", "1", *(f"{t:.3f}" for t in temperatures)))
    lines = [
        f"accuracy {results['accuracy']:.2%}, marginal ECE "
        f"{results['marginal_ece']:.2%}, average uncertainty "
        f"{results['average_uncertainty']:.3f} nats"
    ]
    lines += [
        f"{row[0]:<20}" + "".join(f"{cell:>12}" for cell in row[1:])
        for row in rows
    ]
    return "\n".join([*lines, "", _LEGEND])
