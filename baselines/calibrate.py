r"""Scales a network's outputs and prints the effect on its calibration.

python baselines/calibrate.py --run_dir=runs/focal+sb_ece
python baselines/calibrate.py --outputs=network.npz

The first command reads the predictions of a run. The second reads a file with
the arrays `calibration_logits`, `calibration_labels`, `test_logits` and
`test_labels` of any network. Temperatures are fitted on the calibration split
alone.

For a file with `clean_logits`, `clean_labels`, `corrupted_logits` (corruptions,
severities, examples, classes) and `corrupted_labels` (examples), a second table
shows the means over corruptions at each severity. Temperatures are fitted on
the first half of the clean examples, and the second half is the clean test set.
The corrupted images must not be those of the first half.
"""

import pathlib
import zipfile

import flags
import numpy as np

RUN_DIR = flags.DEFINE_string("run_dir", None, "Folder of a finished run.")
OUTPUTS = flags.DEFINE_string(
    "outputs", None, "An .npz file with a network's outputs."
)
SPLITS = ("calibration", "test")
SHIFTED = ("clean", "corrupted")


def read_run(folder):
    """The predictions of a run, `(logits, labels)` by split."""
    from caltrain_tf.experiments import prediction_files

    predictions = pathlib.Path(folder) / "predictions"
    if not predictions.is_dir():
        raise ValueError(
            "--run_dir must be the folder of a finished run, with "
            f"predictions/. Received: {folder!r}"
        )
    return {
        split: prediction_files.load(predictions / f"{split}.npz")
        for split in SPLITS
    }


def read_outputs(path):
    """The same for a file, and the split `corrupted` if the file has it."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (
        AttributeError,
        OSError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(
            "--outputs must be an .npz file of arrays, as `numpy.savez` "
            f"writes it. Received: {path!r}: {error}"
        ) from error
    splits = SHIFTED if "corrupted_logits" in found else SPLITS
    names = [
        f"{split}_{kind}" for split in splits for kind in ("logits", "labels")
    ]
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(
            f"--outputs must have the arrays {', '.join(names)}. Received: "
            f"{path!r} without {', '.join(missing)}"
        )
    pairs = {
        split: (found[f"{split}_logits"], found[f"{split}_labels"])
        for split in splits
    }
    if splits == SPLITS:
        return pairs
    logits, labels = pairs["corrupted"]
    if logits.ndim != 4 or logits.shape[2:3] != labels.shape:
        raise ValueError(
            "--outputs must have corrupted_logits (corruptions, severities, "
            "examples, classes) and corrupted_labels (examples,). Received: "
            f"the shapes {logits.shape} and {labels.shape} in {path!r}"
        )
    logits, labels = pairs["clean"]
    half = len(labels) // 2
    return {
        "calibration": (logits[:half], labels[:half]),
        "test": (logits[half:], labels[half:]),
        "corrupted": pairs["corrupted"],
    }


def shift_rows(splits, calibrators):
    """Measures of all sets, as the shift benchmark has them."""
    import pandas as pd

    from caltrain_tf.experiments import shift

    corrupted, labels = splits["corrupted"]
    rows = shift.measure("outputs", "none", 0, *splits["test"], calibrators)
    for corruption, severity in np.ndindex(corrupted.shape[:2]):
        logits = corrupted[corruption, severity].astype(np.float32)
        rows += shift.measure(
            "outputs",
            str(corruption),
            severity + 1,
            logits,
            labels,
            calibrators,
        )
    return pd.DataFrame(rows, columns=shift.COLUMNS)


def main(_):
    """Prints the tables."""
    from caltrain_tf.experiments import measures, shift

    if (RUN_DIR.value is None) == (OUTPUTS.value is None):
        raise ValueError("Pass either --run_dir or --outputs.")
    if RUN_DIR.value is not None:
        splits = read_run(RUN_DIR.value)
    else:
        splits = read_outputs(OUTPUTS.value)
    calibrators = measures.fit_calibrators(*splits["calibration"])
    results = measures.final_results(splits["test"], calibrators)
    print(measures.results_table(results))
    if "corrupted" in splits:
        rows = shift_rows(splits, calibrators)
        print(f"\n{shift.severity_table(rows)}")


if __name__ == "__main__":
    flags.run(main, resumes=False)
