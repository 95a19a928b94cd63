"""Figures of reliability and shift rows, with how they were computed."""

from caltrain_tf import evaluation
from caltrain_tf import figures
from caltrain_tf.report.result_figures import seeds_text


def common_shift(rows):
    """Shift rows of the sets that all runs have, by run.

    Args:
        rows: Shift rows of one setting.

    Returns:
        Pairs of an objective's name and the rows of a run of it.
    """
    runs = {}
    for row in rows:
        run = runs.setdefault((row["objective"], row["seed"]), {})
        run.setdefault((row["corruption"], row["severity"]), []).append(row)
    common = set.intersection(*(set(sets) for sets in runs.values()))
    return [
        (
            objective,
            [
                row
                for key, part in sets.items()
                if key in common
                for row in part
            ],
        )
        for (objective, _), sets in runs.items()
    ]


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
            f"of all seeds together; {seeds_text(here)}. Empty bins have no point. "
            "Under the diagonal a network is over-confident, above it "
            "under-confident."
        )
        figure = figures.accuracy_against_confidence(here, calibrator)
        return figure, caption

    return draw


def shift(calibrator):
    """ECE against severity; see `confidence`."""

    def draw(rows):
        here = [row for row in rows.shift if row["calibrator"] == calibrator]
        runs = common_shift(here) if here else []
        if not runs or not any(row["severity"] for row in runs[0][1]):
            return None
        means = evaluation.compare_runs(runs, "ece", calibrator)
        sets = {row["corruption"] for row in runs[0][1] if row["severity"]}
        caption = (
            "ECE (l2, 15 bins of equal mass) at every severity, the mean over "
            f"{len(sets)} corruptions; temperatures are fitted to the clean "
            "calibration split. Lines are means over seeds, bars ±1 standard "
            f"error over them; {seeds_text(here)}."
        )
        return figures.shift_lines(means, "ece"), caption

    return draw
