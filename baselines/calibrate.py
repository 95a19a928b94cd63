r"""Says whether a network is calibrated, and calibrates it.

python baselines/calibrate.py --run_dir=runs/focal+sb_ece
python baselines/calibrate.py --outputs=network.npz

The first command reads the predictions of a run. The second reads a file with
the outputs of any classifier of any framework, as `numpy.savez` writes it:

- `calibration_logits`, `calibration_labels`, `test_logits` and `test_labels`;
- or `logits` and `labels` alone, which are both splits;
- `probs` in place of `logits` for probabilities.

It prints what `ct.diagnose` says of the test split, and a table of temperature
scaling. It writes `diagnosis.json`, `reliability.png` and `calibrator.json`, an
`AutoCalibration` of the calibration split for `ct.posthoc.load`.

For a file with `clean_logits`, `clean_labels`, `corrupted_logits` (corruptions,
severities, examples, classes) and `corrupted_labels` (examples), a second table
shows the means over corruptions at each severity. The first half of the clean
examples, of which there must be no corrupted ones, is the calibration split.
"""

import json
import tempfile

import flags
import numpy as np

FLAGS = flags.FLAGS
flags.DEFINE_string("run_dir", None, "Folder of a finished run.")
flags.DEFINE_string("outputs", None, "An .npz file with a network's outputs.")
text = "Folder of results; <run_dir>/calibration, or --outputs without .npz."
flags.DEFINE_string("output_dir", None, text)
SPLITS = ("calibration", "test")


def read_outputs(path):
    """Pairs by split of a file, and whether they are probabilities."""
    from caltrain_tf import files, inputs

    arrays = files.read_npz(path, "--outputs")
    from_probs = not any(name.endswith("logits") for name in arrays)
    kind = "probs" if from_probs else "logits"

    def pair(prefix):
        names = f"{prefix}{kind}", f"{prefix}labels"
        if missing := [name for name in names if name not in arrays]:
            raise ValueError(
                f"--outputs={path} has the arrays {', '.join(arrays)}, without "
                f"{', '.join(missing)}"
            )
        outputs, labels = found = [arrays[name] for name in names]
        try:
            if prefix == "corrupted_":
                labels = np.broadcast_to(labels, outputs.shape[:3])
            logits = {"from_logits": not from_probs, "name": names[0]}
            inputs.read(outputs, labels, **logits).whole()
        except ValueError as error:
            text = f"{' and '.join(names)} of {path!r}: {error}"
            raise ValueError(text) from error
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


def shift_table(splits, calibrators):
    """Returns the table of the shift benchmark."""
    import pandas as pd

    from caltrain_tf.experiments import shift

    logits, labels = splits["corrupted"]
    where = "outputs", "none", 0
    rows = shift.measure(where, *splits["test"], calibrators)
    for corruption, severity in np.ndindex(logits.shape[:2]):
        where = "outputs", str(corruption), severity + 1
        here = logits[corruption, severity].astype(np.float32)
        rows += shift.measure(where, here, labels, calibrators)
    return shift.severity_table(pd.DataFrame(rows, columns=shift.COLUMNS))


def main(_):
    """Prints the diagnosis and the tables, and writes the files."""
    import caltrain_tf as ct
    from caltrain_tf import files
    from caltrain_tf.experiments import figures, measures, prediction_files

    if (FLAGS.run_dir is None) == (FLAGS.outputs is None):
        raise ValueError("Pass either --run_dir or --outputs.")
    if FLAGS.run_dir is not None:
        run, from_probs = files.as_path(FLAGS.run_dir), False
        folder, stored = run / "calibration", run / "predictions"
        splits = {s: prediction_files.load(stored / f"{s}.npz") for s in SPLITS}
    else:
        splits, from_probs = read_outputs(FLAGS.outputs)
        folder = files.as_path(FLAGS.outputs).with_suffix("")
    folder = files.as_path(FLAGS.output_dir or folder)
    if (folder / "config.json").exists():
        raise ValueError(f"--output_dir={folder} is a run, with other files.")
    found = ct.diagnose(*splits["test"], from_logits=not from_probs)
    calibrator = ct.posthoc.AutoCalibration(from_probs=from_probs)
    calibrator.fit(*splits["calibration"])
    numbers = json.dumps(found.to_dict(), indent=1)
    files.write_text(folder / "diagnosis.json", numbers)
    figures.save(found.figure(), folder / "reliability.png")
    with tempfile.TemporaryDirectory() as local:
        path = files.as_path(local) / "calibrator.json"
        calibrator.save(path)
        files.write_bytes(folder / path.name, path.read_bytes())
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
            print(f"\n{shift_table(splits, calibrators)}")
    print(f"\nResults are in {folder}.")


if __name__ == "__main__":
    flags.run(main)
