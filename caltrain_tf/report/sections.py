"""Which figures a report has, and what they need."""

from collections.abc import Callable
from typing import NamedTuple

from caltrain_tf.report import output_figures
from caltrain_tf.report import result_figures

_TRAIN = (
    "python baselines/study.py --config=CONFIG --output_dir=RUNS "
    "--objectives=nll,nll+sb_ece --seeds=0,1,2"
)
_SHIFT = "python baselines/shift_benchmark.py --run_dir=RUNS"
_DIRICHLET = "python baselines/report.py RUNS --dirichlet"
_TWO_SEEDS = (
    "a primary loss alone and with a secondary loss, two common seeds or more"
)
_RESULTS = ("results.json with this measure", _TRAIN)
_SHIFTED = ("the shift benchmark of the runs", _SHIFT)
# What tables need that may be absent, and what makes it.
TABLE_NEEDS = {
    "results": _RESULTS,
    "measures": _RESULTS,
    "memorisation": _RESULTS,
    "dirichlet": ("Dirichlet calibration of the runs", _DIRICHLET),
    "significance": (_TWO_SEEDS, _TRAIN),
    "significance_ts": (_TWO_SEEDS, _TRAIN),
    "significance_best": (
        "two objectives with two common seeds or more",
        _TRAIN,
    ),
    "shift": _SHIFTED,
    "hyperparameters": _RESULTS,
}


class Kind(NamedTuple):
    """A figure that a report may have.

    Attributes:
        title: What it shows.
        draw: From `Rows` to a figure and its caption, or None where they do
            not allow it.
        needs: What that is, then.
        command: What would produce it.
    """

    title: str
    draw: Callable
    needs: str
    command: str


_EFFECTS = Kind(
    "Effect sizes of the secondary losses (Cohen's d)",
    result_figures.effects,
    _TWO_SEEDS,
    _TRAIN,
)
ACROSS = (_EFFECTS,)
_OUTPUTS = (
    "predictions/calibration.npz and predictions/test.npz of the runs",
    _SHIFT,
)
_TWO = ("two objectives", _TRAIN)
_SCALED = ", after temperature scaling"
# Pairs stand side by side on a wide screen.
OF_A_SETTING = (
    _EFFECTS,
    Kind(
        "ECE against average uncertainty", result_figures.uncertainty, *_RESULTS
    ),
    Kind("ECE by objective", result_figures.bars("ece", "ECE"), *_RESULTS),
    Kind(
        f"ECE by objective{_SCALED}",
        result_figures.bars("ece_ts", f"ECE{_SCALED}"),
        *_RESULTS,
    ),
    Kind(
        "Accuracy against confidence",
        output_figures.confidence("none"),
        *_OUTPUTS,
    ),
    Kind(
        f"Accuracy against confidence{_SCALED}",
        output_figures.confidence("ts"),
        *_OUTPUTS,
    ),
    Kind("Reliability", output_figures.reliability("none"), *_OUTPUTS),
    Kind(f"Reliability{_SCALED}", output_figures.reliability("ts"), *_OUTPUTS),
    Kind(
        "Accuracy-ECE trade-off", result_figures.tradeoff("ece", "ECE"), *_TWO
    ),
    Kind(
        f"Accuracy-ECE trade-off{_SCALED}",
        result_figures.tradeoff("ece_ts", f"ECE{_SCALED}"),
        *_TWO,
    ),
    Kind("ECE under shift", output_figures.shift("none"), *_SHIFTED),
    Kind(f"ECE under shift{_SCALED}", output_figures.shift("ts"), *_SHIFTED),
    Kind(
        f"ECE under shift{_SCALED} by the soft-binned ECE (TS-SB-ECE)",
        output_figures.shift("ts_sb_ece"),
        *_SHIFTED,
    ),
    Kind(
        "Accuracy under shift",
        output_figures.shift("none", "accuracy"),
        *_SHIFTED,
    ),
)
