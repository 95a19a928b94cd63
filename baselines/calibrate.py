r"""Says whether a network is calibrated, and calibrates it.

python baselines/calibrate.py --run_dir=runs/focal+sb_ece
python baselines/calibrate.py --outputs=network.npz

The first command reads the predictions of a run. The second reads a file with
the outputs of any classifier of any framework, as `numpy.savez` writes it:

- `calibration_logits`, `calibration_labels`, `test_logits` and `test_labels`;
- or `logits` and `labels` alone, which are both splits;
- `probs` in place of `logits` for probabilities.

It prints what `ct.diagnose` says of the test split, and a table of temperature
scaling, fitted to the calibration split alone. It writes `diagnosis.json`,
`reliability.png` and `calibrator.json`, an `AutoCalibration` of the calibration
split for `ct.posthoc.load`, to --output_dir.

For a file with `clean_logits`, `clean_labels`, `corrupted_logits` (corruptions,
severities, examples, classes) and `corrupted_labels` (examples), a second table
shows the means over corruptions at each severity. Temperatures are fitted on
the first half of the clean examples, and the second half is the clean test set.
The corrupted images must not be those of the first half.
"""

import json
import pathlib

import flags
import numpy as np

FLAGS = flags.FLAGS
flags.DEFINE_string("run_dir", None, "Folder of a finished run.")
flags.DEFINE_string("outputs", None, "An .npz file with a network's outputs.")
flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the results; by default `calibration` in the run's folder, or "
    "the name of --outputs without .npz.",
)
SPLITS = ("calibration", "test")


def read_run(folder):
    """The predictions of a run, `(logits, labels)` by split."""
    from caltrain_tf.experiments import prediction_files

    return {
        split: prediction_files.load(f"{folder}/predictions/{split}.npz")
        for split in SPLITS
    }


def read_outputs(path):
    """Pairs by split of a file, and whether they are probabilities."""
    from caltrain_tf import files

    arrays = files.read_npz(path, "--outputs")
    from_probs = not any(name.endswith("logits") for name in arrays)

    def pair(prefix):
        names = (
            prefix + ("probs" if from_probs else "logits"),
            prefix + "labels",
        )
        if missing := [name for name in names if name not in arrays]:
            raise ValueError(
                "--outputs must have the arrays logits, or probs, and labels; "
                "or such arrays of two splits, calibration_logits and so on. "
                f"Received: {path!r} with {', '.join(arrays)}, without "
                f"{', '.join(missing)}"
            )
        found = [arrays[name] for name in names]
        check(*found, names, from_probs, path)
        return found

    if "corrupted_logits" in arrays:
        logits, labels = pair("clean_")
        half = len(labels) // 2
        splits = {
            "calibration": (logits[:half], labels[:half]),
            "test": (logits[half:], labels[half:]),
            "corrupted": pair("corrupted_"),
        }
    elif "labels" in arrays:
        splits = dict.fromkeys(SPLITS, pair(""))
    else:
        splits = {split: pair(f"{split}_") for split in SPLITS}
    return splits, from_probs


def check(predictions, labels, names, from_probs, path):
    """Raises an error that names the array, and its first wrong row."""
    from caltrain_tf import inputs

    if names[0] == "corrupted_logits":
        if predictions.shape[2:3] != labels.shape or predictions.ndim != 4:
            raise ValueError(
                "--outputs must have corrupted_logits (corruptions, "
                "severities, examples, classes) and corrupted_labels "
                f"(examples,). Received: the shapes {predictions.shape} and "
                f"{labels.shape} in {path!r}"
            )
        labels = np.broadcast_to(labels, predictions.shape[:-1])
    try:
        inputs.read(
            predictions, labels, from_logits=not from_probs, name=names[0]
        ).whole()
    except ValueError as error:
        text = str(error).replace("labels", names[1])
        raise ValueError(f"{text} in {path!r}") from error


def shift_rows(splits, calibrators):
    """Measures of all sets, as the shift benchmark has them."""
    import pandas as pd

    from caltrain_tf.experiments import shift

    logits, labels = splits["corrupted"]
    rows = shift.measure("outputs", "none", 0, *splits["test"], calibrators)
    for corruption, severity in np.ndindex(logits.shape[:2]):
        where = "outputs", str(corruption), severity + 1
        here = logits[corruption, severity].astype(np.float32)
        rows += shift.measure(*where, here, labels, calibrators)
    return pd.DataFrame(rows, columns=shift.COLUMNS)


def main(_):
    """Prints the diagnosis and the tables, and writes the files."""
    import caltrain_tf as ct
    from caltrain_tf.experiments import measures, shift

    if (FLAGS.run_dir is None) == (FLAGS.outputs is None):
        raise ValueError("Pass either --run_dir or --outputs.")
    if FLAGS.run_dir is not None:
        splits, from_probs = read_run(FLAGS.run_dir), False
        folder = f"{FLAGS.run_dir}/calibration"
    else:
        splits, from_probs = read_outputs(FLAGS.outputs)
        folder = pathlib.Path(FLAGS.outputs).with_suffix("")
    folder = pathlib.Path(FLAGS.output_dir or folder)
    found = ct.diagnose(*splits["test"], from_logits=not from_probs)
    calibrator = ct.posthoc.AutoCalibration(from_probs=from_probs)
    calibrator.fit(*splits["calibration"])
    folder.mkdir(parents=True, exist_ok=True)
    numbers = json.dumps(found.to_dict(), indent=1)
    (folder / "diagnosis.json").write_text(numbers, encoding="utf-8")
    found.figure().savefig(folder / "reliability.png", dpi=150)
    calibrator.save(folder / "calibrator.json")
    print(f"{found}\n")
    if from_probs:
        splits = {
            split: (np.log(np.maximum(probs, 1e-12)), labels)
            for split, (probs, labels) in splits.items()
        }
    if splits["test"][0].ndim > 1 and splits["test"][0].shape[-1] > 1:
        calibrators = measures.fit_calibrators(*splits["calibration"])
        results = measures.final_results(splits["test"], calibrators)
        print(measures.results_table(results))
        if "corrupted" in splits:
            rows = shift_rows(splits, calibrators)
            print(f"\n{shift.severity_table(rows)}")
    print(f"\nResults are in {folder}.")


if __name__ == "__main__":
    flags.run(main)
