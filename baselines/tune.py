r"""Tunes an objective as the paper does: one parameter after the other.

python baselines/tune.py --config=configs/cifar10.py \
      --primary=focal --secondary=sb_ece --tpu=local
python baselines/tune.py --config=configs/quickstart.py --primary=focal \
      --secondary=sb_ece --config.search.beta="(0.3, 1.0)" \
      --config.search.temperature="()" --config.search.l2="()"

First the secondary loss's threshold, then its temperature, its weight beta and
the weight decay, with the values of `config.search`; then what --also names,
such as --also=loss.options.sb_ece.num_bins=5,50. The best trial has the
lowest ECE on the calibration split among those that give up less than one
percentage point of accuracy. The same command goes on with what was stopped.
Started several times with one --storage, workers share the trials.
"""

import os

import command_line
from absl import flags

CONFIG = command_line.define_training("cifar10.py")
FLAGS = flags.FLAGS
flags.DEFINE_enum(
    "strategy",
    "sequential",
    ("sequential", "joint"),
    "One parameter after the other, or all at once by a tree-structured Parzen "
    "estimator between the extremes of `config.search`.",
)
flags.DEFINE_multi_string(
    "also",
    [],
    "Another setting to tune after these, --also=batch_size=64,256; may be "
    "given several times.",
)
flags.DEFINE_integer(
    "trials",
    None,
    "The most trials in total; all values of `config.search` by default, 20 of "
    "a joint search.",
    lower_bound=1,
)
flags.DEFINE_string(
    "storage",
    None,
    "A database URL (postgresql://...) or the path of a .journal file where "
    "workers on many machines meet; OUTPUT_DIR/study.db by default.",
)
flags.DEFINE_string("study_name", None, "Of the study in the storage.")
flags.DEFINE_bool("retry_failed", False, "Try failed trials once more.")
# Of a run; here it is the study's.
flags.FLAGS["output_dir"].help = (
    "Folder of the study; tuning/<primary>+<secondary> by default. The same "
    "command goes on with a study that was stopped."
)


def main(_):
    """Tunes as the flags say, and prints what was found."""
    from caltrain_tf import training
    from caltrain_tf.experiments import build
    from caltrain_tf.experiments.matrix import run_name
    from caltrain_tf.experiments.trials import run_trial
    from caltrain_tf.experiments.tuning import tune
    from caltrain_tf.experiments.tuning_report import tuning_table
    from caltrain_tf.experiments.tuning_report import write_tuning

    if FLAGS.multi_worker:
        raise ValueError("Trials run on one machine: no --multi_worker.")
    config = command_line.read_training(CONFIG)
    # Here, and not in every trial.
    build.check([config], FLAGS.data_dir)
    output_dir = FLAGS.output_dir or os.path.join("tuning", run_name(config))
    strategy = training.get_strategy(tpu=FLAGS.tpu, num_gpus=FLAGS.num_gpus)

    def say(line):
        print(line, flush=True)

    def run(trial_config, folder):
        return run_trial(trial_config, folder, FLAGS.data_dir, strategy, say)

    tuning = tune(
        config,
        output_dir,
        run,
        strategy=FLAGS.strategy,
        others=FLAGS.also,
        trials=FLAGS.trials,
        storage=FLAGS.storage,
        study_name=FLAGS.study_name,
        retry_failed=FLAGS.retry_failed,
        say=say,
    )
    best = write_tuning(config, tuning, output_dir)
    print(f"\n{run_name(config)} on {config.data.name}, calibration split (%)")
    print(tuning_table(tuning))
    print(f"\nBest: {best['flags']}")
    print(f"Everything is in {output_dir}")


if __name__ == "__main__":
    command_line.run(main)
