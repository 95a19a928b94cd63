r"""Scales a network's outputs and says what that does to its calibration.

python baselines/calibrate.py --run_dir=runs/focal+sb_ece
python baselines/calibrate.py --outputs=network.npz

The first takes the predictions of a run; the second a file with the arrays
`calibration_logits`, `calibration_labels`, `test_logits` and `test_labels` of
any network. Temperatures are fitted on the calibration part alone.
"""

import pathlib

import command_line
import numpy as np
from absl import flags

RUN_DIR = flags.DEFINE_string("run_dir", None, "Folder of a finished run.")
OUTPUTS = flags.DEFINE_string("outputs", None, "File of a network's outputs.")
SPLITS = ("calibration", "test")


def read_run(folder):
    """The predictions of a run, `(logits, labels)` by split."""
    from caltrain_tf import evaluation

    predictions = pathlib.Path(folder) / "predictions"
    if not predictions.is_dir():
        raise ValueError(
            "`run_dir` must be the folder of a finished run, with "
            f"predictions/. Received: {folder!r}"
        )
    return {
        split: evaluation.load_predictions(predictions / f"{split}.npz")
        for split in SPLITS
    }


def read_outputs(path):
    """The same of a file with all four arrays."""
    names = [
        f"{split}_{kind}" for split in SPLITS for kind in ("logits", "labels")
    ]
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (AttributeError, OSError, ValueError) as error:
        raise ValueError(
            "`outputs` must be an .npz file of arrays, as `numpy.savez` "
            f"writes it. Received: {path!r}: {error}"
        ) from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(
            f"`outputs` must have the arrays {', '.join(names)}. Received: "
            f"{path!r} without {', '.join(missing)}"
        )
    return {
        split: (found[f"{split}_logits"], found[f"{split}_labels"])
        for split in SPLITS
    }


def main(_):
    """Prints the table."""
    from caltrain_tf import evaluation

    if (RUN_DIR.value is None) == (OUTPUTS.value is None):
        raise ValueError("Pass either --run_dir or --outputs.")
    if RUN_DIR.value is not None:
        splits = read_run(RUN_DIR.value)
    else:
        splits = read_outputs(OUTPUTS.value)
    calibrators = evaluation.fit_calibrators(*splits["calibration"])
    results = evaluation.final_results(splits["test"], calibrators)
    print(evaluation.results_table(results))


if __name__ == "__main__":
    command_line.run(main, resumes=False)
