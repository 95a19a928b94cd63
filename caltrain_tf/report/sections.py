"""Which figures a report has, and what they need."""

from collections.abc import Callable
from typing import NamedTuple

from caltrain_tf.report import output_figures
from caltrain_tf.report import result_figures

_TRAIN = (
    "python baselines/cifar/train.py --primary=nll --secondary=sb_ece "
    "--config.seed=1 --output_dir=RUNS/nll+sb_ece/seed1"
)
_TRAIN_ALONE = (
    "python baselines/cifar/train.py --primary=nll --secondary=none "
    "--config.seed=1 --output_dir=RUNS/nll/seed1"
)
_SHIFT = "python baselines/shift_benchmark.py --run_dir=RUNS"
_DIRICHLET = "python baselines/report.py RUNS --dirichlet"
_CALIBRATORS = {"none": "no scaling", "ts": "TS", "ts_sb_ece": "TS-SB-ECE"}
_TWO_SEEDS = (
    "a primary loss alone and with a secondary loss, two common seeds or more"
)
_RESULTS = ("results.json with this measure", _TRAIN)
# What tables need that may be absent, and what makes it.
TABLE_NEEDS = {
    "results": _RESULTS,
    "measures": _RESULTS,
    "dirichlet": ("Dirichlet calibration of the runs", _DIRICHLET),
    "significance": (_TWO_SEEDS, _TRAIN_ALONE),
    "significance_ts": (_TWO_SEEDS, _TRAIN_ALONE),
    "significance_best": (
        "two objectives with two common seeds or more",
        _TRAIN,
    ),
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
    _TRAIN_ALONE,
)
ACROSS = (_EFFECTS,)
OF_A_SETTING = (
    _EFFECTS,
    Kind("ECE by objective", result_figures.bars("ece", "ECE"), *_RESULTS),
    Kind(
        "ECE by objective after temperature scaling",
        result_figures.bars("ece_ts", "ECE after temperature scaling"),
        *_RESULTS,
    ),
    *(
        Kind(
            f"Accuracy against confidence, {label}",
            output_figures.confidence(calibrator),
            "predictions/calibration.npz and predictions/test.npz of the runs",
            _TRAIN,
        )
        for calibrator, label in _CALIBRATORS.items()
    ),
    Kind(
        "ECE against average uncertainty", result_figures.uncertainty, *_RESULTS
    ),
    Kind(
        "Accuracy and ECE, no scaling",
        result_figures.tradeoff("ece", "ECE"),
        "two objectives",
        _TRAIN,
    ),
    *(
        Kind(
            f"ECE under shift, {label}",
            output_figures.shift(calibrator),
            "the shift benchmark of the runs",
            _SHIFT,
        )
        for calibrator, label in _CALIBRATORS.items()
    ),
)
