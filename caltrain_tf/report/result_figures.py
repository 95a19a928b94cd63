"""Figures of result rows, each with how it was computed."""

import math

from caltrain_tf import evaluation
from caltrain_tf import figures

ECE = "ECE is l2 over 15 bins of equal mass."


def seeds_text(rows):
    """Says how many seeds the objectives of rows have."""
    counts = {}
    for row in rows:
        counts.setdefault(row["objective"], set()).add(row["seed"])
    least, most = min(map(len, counts.values())), max(map(len, counts.values()))
    number = str(least) if least == most else f"{least} to {most}"
    return f"{number} {'seed' if most == 1 else 'seeds'} an objective"


def effects(rows):
    """Figure 1 of the paper, or None where no effect can be computed."""
    metrics = [
        key
        for key in ("ece", "ece_ts")
        if any(key in row for row in rows.results)
    ]
    effects = [
        effect
        for metric in metrics
        for effect in evaluation.effect_sizes(rows.results, metric)
        if not math.isnan(effect["d"])
    ]
    if not effects:
        return None
    pairs = {(row["setting"], row["primary"]) for row in effects}
    count = f"{len(pairs)} pair{'s' * (len(pairs) > 1)}"
    caption = (
        "Cohen's d of every secondary loss: the mean ECE of the primary loss "
        "alone minus that with the secondary loss, over the standard deviation "
        "of the two samples of seeds pooled; without scaling, and after "
        "temperature scaling. Bars are means of d over "
        f"{count} of a setting and a primary loss, marks are one of them "
        f"each; {seeds_text(rows.results)}. A d of 0.8 is called large, one of "
        "2 huge. With few seeds d is itself uncertain, and biased upwards. "
        f"{ECE}"
    )
    return figures.effect_size_bars(effects), caption


def bars(metric, what):
    """Figure 5 of the paper.

    Args:
        metric: Which error.
        what: What it is called.

    Returns:
        From `Rows` to a figure and its caption, or None where they have none.
    """

    def draw(rows):
        if not any(metric in row for row in rows.results):
            return None
        summaries = evaluation.summarize_results(rows.results, [metric])
        caption = (
            f"{what} of the test split by objective, with its accuracy under "
            "each bar. Means over seeds, bars ±1 standard error over them; "
            f"{seeds_text(rows.results)}. {ECE}"
        )
        return figures.error_bars_by_objective(summaries, metric), caption

    return draw


def uncertainty(rows):
    """ECE against mean entropy, or None where the latter is not there."""
    if not any("average_uncertainty" in row for row in rows.results):
        return None
    caption = (
        "ECE of the test split, without scaling, against the mean entropy of "
        "the predicted probabilities. Small points are runs, large ones means "
        f"over seeds; {seeds_text(rows.results)}. {ECE}"
    )
    return figures.error_against_uncertainty(rows.results), caption


def tradeoff(metric, what):
    """Accuracy against an error; see `bars`."""

    def draw(rows):
        here = [row for row in rows.results if metric in row]
        if len({row["objective"] for row in here}) < 2:
            return None
        caption = (
            f"{what} against accuracy, of the test split. Small points are "
            f"runs, large ones means over seeds; {seeds_text(here)}. The line "
            "is the Pareto front of the means: no objective is both more "
            f"accurate and better calibrated than one on it. {ECE}"
        )
        return figures.accuracy_error_tradeoff(here, metric), caption

    return draw
