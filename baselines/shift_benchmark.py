"""Evaluates finished runs on corrupted test sets.

python baselines/shift_benchmark.py --run_dir=runs/focal+sb_ece
python baselines/shift_benchmark.py --run_dir=runs --corrupted_dir=CIFAR-10-C

The corrupted sets are read from `--corrupted_dir` or from TensorFlow Datasets.
With `--generated`, and for data without published sets, they are generated from
the clean test images. Predictions that are already in the run folder are not
computed again.
"""

import os

import flags

flags.define("data_dir")
flags.define_devices()
FLAGS = flags.FLAGS
flags.DEFINE_list(
    "run_dir", None, "A run, several runs, or a folder of runs.", required=True
)
flags.DEFINE_string(
    "corrupted_dir",
    None,
    "Folder of CIFAR-10-C or CIFAR-100-C (<corruption>.npy and labels.npy) or "
    "of ImageNet-C (<corruption>/<severity>/<class>/*.JPEG) as distributed.",
)
flags.DEFINE_bool(
    "generated",
    False,
    "Whether to generate the sets instead of reading published ones.",
)
flags.DEFINE_string(
    "frost_dir", None, "Folder of frost photographs for generated sets."
)
flags.DEFINE_list(
    "corruptions", None, "Corruptions to evaluate; all 15 by default."
)
flags.DEFINE_list("severities", list("12345"), "Severities to evaluate.")
flags.DEFINE_integer(
    "num_examples",
    None,
    "Use only this many first examples of each test set.",
    lower_bound=1,
)
flags.DEFINE_integer("batch_size", 256, "Batch size of inference.", 1)
flags.DEFINE_enum(
    "keep_predictions",
    "float32",
    ["float32", "float16", "no"],
    "Precision in which the predictions of corrupted sets are kept; ImageNet-C "
    "takes 15 GB in float32. With `no`, an evaluation that is stopped starts "
    "again from the beginning.",
)


def main(_):
    """Evaluates each run, and compares them if there are several."""
    import pandas as pd

    import caltrain_tf as ct
    from caltrain_tf.experiments import figures, shift, statistics

    options = shift.shift_options(
        FLAGS.corruptions or ct.data.corruptions.NAMES,
        flags.integers("severities"),
        FLAGS.num_examples,
        FLAGS.generated,
    )
    strategy = flags.strategy()
    runs = []
    for run_dir in shift.find_runs(FLAGS.run_dir):
        name, rows, source = shift.benchmark_run(
            run_dir,
            FLAGS.data_dir,
            corrupted_dir=FLAGS.corrupted_dir,
            frost_dir=FLAGS.frost_dir,
            batch_size=FLAGS.batch_size,
            keep_predictions=FLAGS.keep_predictions,
            strategy=strategy,
            **options,
        )
        runs.append(rows.assign(objective=name, seed=run_dir))
        print(f"\n{name}, {run_dir}\ncorrupted sets: {source}")
        print(shift.severity_table(rows))
    if len(runs) < 2 or not ct.training.is_chief(strategy):
        return
    folder = _common_folder(FLAGS.run_dir)
    for dataset, rows in pd.concat(runs).groupby("dataset"):
        print(f"\n{dataset}\n{shift.comparison_table(rows)}")
        for calibrator in rows["calibrator"].unique():
            title = f"{dataset}, {figures.calibrator_label(calibrator)}"
            means = statistics.shift_by_objective(rows, calibrator)
            figure = figures.shift_lines(means, "ece", title)
            name = f"shift_ece_{dataset}_{calibrator}.png"
            figures.save(figure, os.path.join(folder, name))
            print(f"Figure: {os.path.join(folder, name)}")


def _common_folder(paths):
    """The folder that holds all paths, which may be those of a bucket."""
    scheme, separator, _ = paths[0].rpartition("://")
    if not separator:
        return os.path.commonpath(map(os.path.abspath, paths))
    names = [path.removeprefix(scheme + separator) for path in paths]
    return scheme + separator + os.path.commonpath(names)


if __name__ == "__main__":
    flags.run(main)
