r"""Scales a network's outputs and says what that does to its calibration.

python baselines/calibrate.py --run_dir=runs/focal+sb_ece
python baselines/calibrate.py --outputs=network.npz

The first takes the predictions of a run; the second a file with the arrays
`calibration_logits`, `calibration_labels`, `test_logits` and `test_labels` of
any network. Temperatures are fitted on the calibration part alone.
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
from absl import app  # noqa: E402
from absl import flags  # noqa: E402

from caltrain_tf import evaluation  # noqa: E402

RUN_DIR = flags.DEFINE_string("run_dir", None, "Folder of a finished run.")
OUTPUTS = flags.DEFINE_string("outputs", None, "File of a network's outputs.")


def read_run(folder):
    """The predictions of a run, `(logits, labels)` by split."""
    predictions = pathlib.Path(folder) / "predictions"
    return {
        split: evaluation.load_predictions(predictions / f"{split}.npz")
        for split in ("calibration", "test")
    }


def read_outputs(path):
    """The same of a file with all four arrays."""
    with np.load(path, allow_pickle=False) as arrays:
        return {
            split: (arrays[f"{split}_logits"], arrays[f"{split}_labels"])
            for split in ("calibration", "test")
        }


def main(argv):
    """Prints the table."""
    if len(argv) > 1 or (RUN_DIR.value is None) == (OUTPUTS.value is None):
        raise app.UsageError("Pass --run_dir or --outputs, and nothing else.")
    if RUN_DIR.value is not None:
        splits = read_run(RUN_DIR.value)
    else:
        splits = read_outputs(OUTPUTS.value)
    calibrators = evaluation.fit_calibrators(*splits["calibration"])
    results = evaluation.final_results(splits["test"], calibrators)
    print(evaluation.results_table(results))


if __name__ == "__main__":
    app.run(main)
