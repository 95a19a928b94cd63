"""Figures of reliability and shift rows, with how they were computed."""

from caltrain_tf import evaluation
from caltrain_tf import figures
from caltrain_tf.report.result_figures import seeds_text
from caltrain_tf.report.shift_table import common_shift


def confidence(calibrator):
    """Accuracy against confidence of outputs after a calibrator.

    Args:
        calibrator: Which one.

    Returns:
        From `Rows` to a figure and its caption, or None where they have none.
    """

    def draw(rows):
        here = [r for r in rows.reliability if r["calibrator"] == calibrator]
        if not here:
            return None
        caption = (
            "Share of correct predictions against mean confidence (the largest "
            "probability) in 15 bins of equal width, of the test predictions "
            f"of all seeds together; {seeds_text(here)}. Empty bins have no "
            "point. Under the diagonal a network is over-confident, above it "
            "under-confident."
        )
        figure = figures.accuracy_against_confidence(here, calibrator)
        return figure, caption

    return draw


def reliability(calibrator):
    """Reliability diagrams of every objective; see `confidence`."""
    key = "ece" if calibrator == "none" else f"ece_{calibrator}"

    def draw(rows):
        here = [r for r in rows.reliability if r["calibrator"] == calibrator]
        if not here:
            return None
        errors = {}
        if any(key in row for row in rows.results):
            summaries = evaluation.summarize_results(rows.results, [key])
            errors = {
                summary["objective"]: summary["mean"][key]
                for summary in summaries
                if key in summary["mean"]
            }
        caption = (
            "Bars are the accuracy of the test predictions in 15 bins of equal "
            "width, of all seeds together; the orange gap leads to their mean "
            "confidence. Beneath is the share of the predictions in each bin, "
            "with their mean confidence (line) and accuracy (dashed). The "
            "corner gives the mean over seeds of the ECE, l2 over 15 bins of "
            f"equal mass; {seeds_text(here)}."
        )
        return figures.reliability_from_rows(here, calibrator, errors), caption

    return draw


def shift(calibrator, metric="ece"):
    """A metric against severity; see `confidence`."""
    what = {
        "ece": "ECE (l2, 15 bins of equal mass)",
        "accuracy": "Accuracy",
    }[metric]

    def draw(rows):
        here = [
            row
            for row in rows.shift
            if (row["calibrator"], row["metric"]) == (calibrator, metric)
        ]
        runs = common_shift(here) if here else []
        if not runs or not any(row["severity"] for row in runs[0][1]):
            return None
        means = evaluation.compare_runs(runs, metric, calibrator)
        sets = {row["corruption"] for row in runs[0][1] if row["severity"]}
        caption = (
            f"{what} on the corrupted test sets, at each severity the mean "
            f"over {len(sets)} corruptions, those that every run was measured "
            "on. Temperatures are fitted to the clean calibration split. Lines "
            "are means over seeds, bars ±1 standard error over them; "
            f"{seeds_text(here)}."
        )
        return figures.shift_lines(means, metric), caption

    return draw
