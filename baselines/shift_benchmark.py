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

RUN_DIR = flags.DEFINE_list(
    "run_dir", None, "A run, several runs, or a folder of runs.", required=True
)
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of TensorFlow Datasets."
)
CORRUPTED_DIR = flags.DEFINE_string(
    "corrupted_dir",
    None,
    "Folder of CIFAR-10-C or CIFAR-100-C (<corruption>.npy and labels.npy) or "
    "of ImageNet-C (<corruption>/<severity>/<class>/*.JPEG) as distributed.",
)
GENERATED = flags.DEFINE_bool(
    "generated",
    False,
    "Whether to generate the sets instead of reading published ones.",
)
FROST_DIR = flags.DEFINE_string(
    "frost_dir",
    None,
    "Folder of frost photographs for generated sets.",
)
CORRUPTIONS = flags.DEFINE_list(
    "corruptions", None, "Corruptions to evaluate; all 15 by default."
)
SEVERITIES = flags.DEFINE_list(
    "severities", list("12345"), "Severities to evaluate."
)
NUM_EXAMPLES = flags.DEFINE_integer(
    "num_examples",
    None,
    "Use only this many first examples of each test set.",
    lower_bound=1,
)
BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Batch size of inference.", lower_bound=1
)
KEEP_PREDICTIONS = flags.DEFINE_enum(
    "keep_predictions",
    "float32",
    ["float32", "float16", "no"],
    "Precision in which the predictions of corrupted sets are kept; ImageNet-C "
    "takes 15 GB in float32. With `no`, an evaluation that is stopped starts "
    "again from the beginning.",
)
TPU = flags.DEFINE_string("tpu", None, "`local`, or the name of a TPU.")
NUM_GPUS = flags.DEFINE_integer(
    "num_gpus", None, "Number of GPUs to use; all by default."
)
MULTI_WORKER = flags.DEFINE_bool(
    "multi_worker", False, "Whether TF_CONFIG names several machines."
)


def main(_):
    """Evaluates each run, and compares them if there are several."""
    import caltrain_tf as ct
    from caltrain_tf.experiments import figures, shift, shift_tables

    options = shift.shift_options(
        CORRUPTIONS.value or ct.data.corruptions.NAMES,
        flags.integers("severities"),
        NUM_EXAMPLES.value,
        GENERATED.value,
    )
    strategy = ct.training.get_strategy(
        tpu=TPU.value,
        num_gpus=NUM_GPUS.value,
        multi_worker=MULTI_WORKER.value,
    )
    runs = []
    for run_dir in shift.find_runs(RUN_DIR.value):
        name, rows, source = shift.benchmark_run(
            run_dir,
            DATA_DIR.value,
            corrupted_dir=CORRUPTED_DIR.value,
            frost_dir=FROST_DIR.value,
            batch_size=BATCH_SIZE.value,
            keep_predictions=KEEP_PREDICTIONS.value,
            strategy=strategy,
            **options,
        )
        runs.append((name, rows))
        print(f"\n{name}, {run_dir}\ncorrupted sets: {source}")
        print(shift_tables.severity_table(rows))
    if len(runs) > 1 and ct.training.is_chief(strategy):
        print(f"\n{shift_tables.comparison_table(runs)}")
        folder = _common_folder(RUN_DIR.value)
        for calibrator in ("none", "ts", "ts_sb_ece"):
            means = shift_tables.compare_runs(runs, "ece", calibrator)
            figure = figures.shift_lines(
                means, "ece", figures.calibrator_label(calibrator)
            )
            path = os.path.join(folder, f"shift_ece_{calibrator}.png")
            figures.save(figure, path)
            print(f"Figure: {path}")


def _common_folder(paths):
    """The folder that holds all paths, which may be those of a bucket."""
    scheme, separator, _ = paths[0].rpartition("://")
    if not separator:
        return os.path.commonpath(map(os.path.abspath, paths))
    names = [path.removeprefix(scheme + separator) for path in paths]
    return scheme + separator + os.path.commonpath(names)


if __name__ == "__main__":
    flags.run(main)
