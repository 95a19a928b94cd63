"""Summarises the results of a setting in a few sentences."""

import math

from caltrain_tf.experiments import statistics
from caltrain_tf.experiments.figures import calibrator_label, objective_label
from caltrain_tf.experiments.tables import common_shift, shift_images, text_of

SHIFT_COMMAND = "python baselines/shift_benchmark.py --run_dir=RUNS"


def findings(results, shift):
    """Returns a summary of the results of one setting, in a few sentences.

    Args:
        results: Result rows of the setting.
        shift: Shift rows of the setting.

    Returns:
        Pairs of a short title and a text.
    """
    keys = [key for key in results if key == "ece" or key.startswith("ece_")]
    keys = [key for key in keys if results[key].notna().any()]
    summaries = {
        summary["objective"]: summary
        for summary in statistics.summarize_results(results, keys)
    }
    best = next(s for s in summaries.values() if s["best"].get("ece"))
    tests = {
        test["objective"]: test
        for test in statistics.significance_rows(results)
        if test["comparison"] == "primary"
    }
    return [
        ("Best calibrated", _best_text(best, summaries)),
        ("Against the primary loss alone", _gain_text(best, summaries, tests)),
        ("Post-hoc scaling", _scaling_text(best, summaries, keys)),
        ("Under shift", _shift_text(best, summaries, results, shift)),
    ]


def _best_text(best, summaries):
    values = [_percent(best, key) for key in ("ece", "accuracy")]
    text = f"{_label(best)}, ECE {values[0]} at {values[1]} accuracy"
    if len(summaries) == 1:
        return f"{text}; no other objective was trained."
    within = [s for s in summaries.values() if s["within_accuracy"]]
    alone = [s for s in summaries.values() if _is_alone(s)]
    reference = max(
        alone or summaries.values(), key=lambda s: s["mean"]["accuracy"]
    )
    text += (
        f": the lowest ECE of the {len(within)} of {len(summaries)} "
        "objectives that give up less than 1% accuracy against the most "
        f"accurate {'primary loss alone' if alone else 'one'}, "
        f"{_label(reference)} ({_percent(reference, 'accuracy')})."
    )
    lowest = min(summaries.values(), key=lambda s: s["mean"]["ece"])
    if lowest is not best:
        lost = reference["mean"]["accuracy"] - lowest["mean"]["accuracy"]
        text += (
            f" {_label(lowest)} has {_percent(lowest, 'ece')}, but gives up "
            f"{text_of(lost)} points of accuracy."
        )
    if best["count"]["ece"] == 1:
        text += " It is a single run: another seed may give another order."
    return text


def _gain_text(best, summaries, tests):
    test = tests.get(best["objective"])
    if test is not None:
        return f"{_label(best)} has {_test_text(test, summaries, tests)}."
    if best["secondary"]:
        alone = objective_label(best["primary"])
        return f"Not known: {alone} alone was not run with a common seed."
    if not tests:
        return "No secondary loss was run with a common seed."
    parts = [f"{_label(best)} is a primary loss alone."]
    own = [
        test
        for test in tests.values()
        if test["against"] == best["objective"]
        and summaries[test["objective"]]["within_accuracy"]
    ]
    if own:
        nearest = min(own, key=lambda test: test["difference"])
        text = _test_text(nearest, summaries, tests)
        parts.append(
            "Nearest to it with a secondary loss, "
            f"{objective_label(nearest['objective'])} has {text}."
        )
    largest = min(tests.values(), key=lambda test: test["difference"])
    if largest["difference"] < 0 and largest not in own:
        text = _test_text(largest, summaries, tests)
        parts.append(
            "The largest gain of a secondary loss is that of "
            f"{objective_label(largest['objective'])}, with {text}."
        )
    return " ".join(parts)


def _test_text(test, summaries, tests):
    """Returns how an objective differs from its primary loss alone, as text."""
    gain = -test["difference"]
    less = "less" if gain >= 0 else "more"
    text = (
        f"{text_of(abs(gain))} points {less} ECE than "
        f"{objective_label(test['against'])} alone "
        f"({_percent(summaries[test['against']], 'ece')})"
    )
    if test["count"] == 1:
        return f"{text}, in one run each: there is no interval"
    if math.isnan(test["t_p_value"]):
        return f"{text}, the same in all {test['count']} seeds"
    interval = (test["low"], test["high"])
    if gain >= 0:
        interval = (-test["high"], -test["low"])
    low, high = map(text_of, interval)
    holm = ""
    if len(tests) > 1:
        holm = (
            f"; {_p(test['t_p_holm'])} with Holm's correction for "
            f"{len(tests)} tests"
        )
    return (
        f"{text}, 95% interval {low} to {high}, {_p(test['t_p_value'])} "
        f"(over {test['count']} seeds{holm})"
    )


def _scaling_text(best, summaries, keys):
    scaled = [key for key in keys if key != "ece" and key in best["mean"]]
    if not scaled:
        return "Not measured."
    parts = [
        f"{_percent(best, key)} with {calibrator_label(key[4:])}"
        for key in scaled
    ]
    unscaled = _percent(best, "ece")
    text = f"{_label(best)} has {unscaled} without, {word_list(parts)}."
    within = [s for s in summaries.values() if s["within_accuracy"]]
    lowest, key = min(
        ((s, key) for s in within for key in keys if key in s["mean"]),
        key=lambda pair: pair[0]["mean"][pair[1]],
    )
    if len(summaries) == 1 or (lowest is best and key != "ece"):
        return text
    if key == "ece":
        return f"{text} No scaling of any objective gives a lower ECE."
    return (
        f"{text} The lowest ECE with scaling is {_percent(lowest, key)}, of "
        f"{_label(lowest)} with {calibrator_label(key[4:])}."
    )


def _shift_text(best, summaries, results, shift):
    means = []
    for calibrator in shift["calibrator"].unique():
        rows, _ = common_shift(shift, calibrator)
        means += [{**row, "calibrator": calibrator} for row in rows]
    if not means:
        return f"Not measured. {SHIFT_COMMAND}"
    worst = max(row["severity"] for row in means)
    values = {
        (row["objective"], row["calibrator"], row["severity"]): row["mean"]
        for row in means
    }
    images = shift_images(results)
    names = [best["objective"]]
    if best["secondary"]:
        names.append(best["primary"])
    parts = []
    for name in names:
        clean = values.get((name, "none", 0))
        shifted = values.get((name, "none", worst))
        if clean is not None and shifted is not None:
            alone = " alone" * (name != best["objective"])
            parts.append(
                f"from {text_of(clean)}% to {text_of(shifted)}% for "
                f"{objective_label(name)}{alone}"
            )
    of_images = f" (sets of {images} images)" if images else ""
    text = f"At severity {worst}{of_images}"
    if parts:
        text = (
            f"From clean images to severity {worst}{of_images}, the ECE "
            f"without scaling goes {word_list(parts)}. At severity {worst}"
        )
    within = [
        (mean, name, calibrator)
        for (name, calibrator, severity), mean in values.items()
        if severity == worst and summaries[name]["within_accuracy"]
    ]
    mean, name, calibrator = min(within)
    return (
        f"{text}, the lowest is {text_of(mean)}%, of {objective_label(name)} "
        f"with {calibrator_label(calibrator)}."
    )


def _is_alone(summary):
    return not summary["secondary"] and not summary["interleaved"]


def _label(summary):
    return objective_label(summary["objective"])


def _percent(summary, key):
    return f"{text_of(summary['mean'][key])}%"


def _p(value):
    # Non-breaking spaces keep the parts on one line.
    text = f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def word_list(items):
    """Returns texts as a list in a sentence: `a, b and c`."""
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last
