r"""Tunes an objective as the paper does: one parameter after the other.

python baselines/tune.py --config=configs/cifar10.py \
      --primary=focal --secondary=sb_ece --tpu=local
python baselines/tune.py --config=configs/quickstart.py --primary=focal \
      --secondary=sb_ece --config.search.beta="(0.3, 1.0)" \
      --config.search.temperature="()" --config.search.l2="()"

The script tunes the threshold of the secondary loss, then its temperature, its
weight beta and the weight decay, with the values of `config.search`, and then
the settings that --also names, such as
--also=loss.options.sb_ece.num_bins=5,50. The best trial has the lowest ECE on
the calibration split among those that give up less than one percentage point of
accuracy. Each trial has its own process and its own run folder,
`<output_dir>/trials/<values>`. The same command resumes stopped trials and
retries failed trials.
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
    "Tune one parameter after the other, or all at once with a tree-structured "
    "Parzen estimator between the extremes of `config.search`.",
)
flags.DEFINE_multi_string(
    "also",
    [],
    "Another setting to tune after those of `config.search`, such as "
    "--also=batch_size=64,256; may be given several times.",
)
flags.DEFINE_integer(
    "trials",
    None,
    "Largest number of trials; by default all values of `config.search`, or 20 "
    "for a joint search.",
    lower_bound=1,
)
command_line.define_pool()
# `define_training` describes it as the folder of a run.
flags.FLAGS["output_dir"].help = (
    "Folder of the tuning; tuning/<primary>+<secondary> by default. The same "
    "command resumes a tuning that was stopped."
)


def main(_):
    """Tunes as the flags say, and prints the best values."""
    from caltrain_tf.experiments import build, tune
    from caltrain_tf.experiments.config import run_name

    if FLAGS.multi_worker:
        raise ValueError("Trials run on one machine: no --multi_worker.")
    config = command_line.read_training(CONFIG)
    # Here, and not in the log of every trial.
    build.check([config], FLAGS.data_dir)
    output_dir = FLAGS.output_dir or os.path.join("tuning", run_name(config))
    tune.search_space(config, FLAGS.also, FLAGS.data_dir)
    with command_line.open_pool() as pool:
        tuning = tune.tune(
            config,
            output_dir,
            pool,
            strategy=FLAGS.strategy,
            others=FLAGS.also,
            trials=FLAGS.trials,
            data_dir=FLAGS.data_dir,
            tpu=FLAGS.tpu,
            num_gpus=FLAGS.num_gpus,
        )
    best = tune.write_tuning(config, tuning, output_dir)
    print(f"\n{run_name(config)} on {config.data.name}, calibration split (%)")
    print(tune.tuning_table(tuning))
    if any(trial.result is None for trial in tuning.trials.values()):
        print("\nThe same command tries the failed trials again.")
    print(f"\nBest: {best['flags']}")
    print(f"Everything is in {output_dir}")


if __name__ == "__main__":
    command_line.run(main)
