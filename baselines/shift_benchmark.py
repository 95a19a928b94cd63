"""Evaluates finished runs on corrupted test sets.

python baselines/shift_benchmark.py --run_dir=runs/focal+sb_ece
python baselines/shift_benchmark.py --run_dir=runs --corrupted_dir=CIFAR-10-C

The corrupted sets are read from `--corrupted_dir` or from TensorFlow Datasets.
With `--generated`, and for data without published sets, they are generated from
the clean test images. Predictions that are already in the run folder are not
computed again. `baselines/report.py` compares the runs.
"""

import os

import flags
import shift_flags

shift_flags.define()
flags.define(*flags.DEVICES)
FLAGS = flags.FLAGS
flags.DEFINE_list("run_dir", None, "Runs, or folders of runs.", required=True)
text = "Batch size of the evaluation."
flags.DEFINE_integer("batch_size", 256, text, lower_bound=1)
flags.DEFINE_bool(
    "keep_predictions",
    True,
    "Store the predictions for corrupted sets, for ImageNet-C 15 GB. Without, "
    "an evaluation that is stopped starts again from the beginning.",
)


def main(_):
    """Evaluates each run."""
    from caltrain_tf import training
    from caltrain_tf.experiments import experiment, robustness_metrics, shift

    strategy = flags.strategy()
    for run_dir in shift.find_runs(FLAGS.run_dir):
        config, data, model = shift.load_run(run_dir, FLAGS.data_dir, strategy)
        sets, names, severities = shift_flags.sets(data)
        report = robustness_metrics.Measurements()
        # One process at a time; another one waits.
        with experiment.open_folder(run_dir, config, strategy, wait=True):
            rows = shift.evaluate(
                model,
                data,
                sets=sets,
                corruptions=names,
                severities=severities,
                batch_size=FLAGS.batch_size,
                num_examples=FLAGS.num_examples,
                predictions_dir=os.path.join(run_dir, "predictions"),
                keep_predictions=FLAGS.keep_predictions,
                report=report,
                strategy=strategy,
                verbose=True,
            )
            if training.is_chief(strategy):
                shift.write(run_dir, config, rows, report, sets)
        print(f"\n{run_dir}\ncorrupted sets: {sets.source}")
        print(shift.severity_table(rows))


if __name__ == "__main__":
    flags.run(main)
