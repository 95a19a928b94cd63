"""What objectives, metrics and calibrators are called in figures."""

_INTERLEAVED = "-interleaved"
_LOSSES = {
    "nll": "NLL",
    "focal": "Focal",
    "mse": "MSE",
    "s_avuc": "S-AvUC",
    "sb_ece": "SB-ECE",
    "mmce": "MMCE",
    "avuc": "AvUC",
    "avuc_gs": "AvUC-GS",
    "sb_marginal_ece": "SB-marginal ECE",
}
# After these come a calibrator's name, or nothing: `ece`, `ece_ts`.
_METRICS = {
    "accuracy": ("Accuracy", "%"),
    "ece": ("ECE", "%"),
    "ks_error": ("KS error", "%"),
    "mean_sweep_ce": ("Mean-sweep CE", "%"),
    "marginal_ece": ("Marginal ECE", "%"),
    "smooth_ece": ("Smooth ECE", "%"),
    "nll": ("NLL", ""),
    "brier": ("Brier score", ""),
    "temperature": ("Temperature", ""),
    "average_uncertainty": ("Average uncertainty", "nats"),
}


def split_objective(objective):
    """The primary and secondary loss ("" for none), and whether interleaved.

    Example:
        >>> split_objective("nll+s_avuc-interleaved")
        ('nll', 's_avuc', True)
    """
    name = objective.removesuffix(_INTERLEAVED)
    primary, _, secondary = name.partition("+")
    return primary, secondary, name != objective


def loss_label(loss):
    """The paper's name of a loss; other names stay as they are."""
    return _LOSSES.get(loss, loss)


def objective_label(objective):
    """The paper's name of an objective.

    Args:
        objective: As runs are called: `focal+sb_ece`.

    Returns:
        Text.

    Example:
        >>> objective_label("focal+sb_ece")
        'Focal + SB-ECE'
        >>> objective_label("nll+s_avuc-interleaved")
        'NLL + S-AvUC (interleaved)'
    """
    primary, secondary, interleaved = split_objective(objective)
    label = " + ".join(map(loss_label, filter(None, (primary, secondary))))
    return label + (" (interleaved)" if interleaved else "")


def calibrator_label(calibrator):
    """How a calibrator is called.

    Example:
        >>> calibrator_label("none"), calibrator_label("ts_sb_ece")
        ('no scaling', 'TS-SB-ECE')
    """
    if calibrator == "none":
        return "no scaling"
    if calibrator == "dirichlet":
        return "Dirichlet"
    return calibrator.replace("_", "-").upper()


def metric_label(metric, unit=True):
    """How a metric is called, and its unit.

    Args:
        metric: As in `results.json`: `ece`, `ece_ts`.
        unit: Whether to add the unit.

    Returns:
        Text.

    Example:
        >>> metric_label("ece_ts_sb_ece"), metric_label("nll")
        ('ECE + TS-SB-ECE (%)', 'NLL')
    """
    base, calibrator = _split_metric(metric)
    label, unit_name = _METRICS.get(base, (base, ""))
    if calibrator:
        label += f" + {calibrator_label(calibrator)}"
    return f"{label} ({unit_name})" if unit and unit_name else label


def metric_factor(metric):
    """100 for what is drawn in percent, else 1."""
    base, _ = _split_metric(metric)
    return 100 if _METRICS.get(base, ("", ""))[1] == "%" else 1


def _split_metric(metric):
    for base in _METRICS:
        if metric == base or metric.startswith(f"{base}_"):
            return base, metric[len(base) + 1 :]
    return metric, ""
