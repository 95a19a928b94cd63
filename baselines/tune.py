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
accuracy. A trial is a run in `<output_dir>/trials/<values>`. The same command
resumes stopped trials and retries failed trials. `--tuned=<output_dir>` of the
other scripts takes the result.
"""

import os

import flags

flags.define_objective()
flags.define_config("cifar10.py")
flags.define_devices(multi_worker=False)
flags.define_pool()
FLAGS = flags.FLAGS
flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the tuning; tuning/<primary>+<secondary> by default. The same "
    "command resumes a tuning that was stopped.",
)
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


def main(_):
    """Tunes as the flags say, and prints the best values."""
    from caltrain_tf.experiments import build, tune
    from caltrain_tf.experiments.config import objective

    config = flags.objective_config()
    # Here, and not in the log of every trial.
    build.check([config], FLAGS.data_dir)
    tune.search_space(config, FLAGS.also, FLAGS.data_dir)
    output_dir = FLAGS.output_dir or os.path.join("tuning", objective(config))
    with flags.open_pool() as pool:
        space, rows = tune.tune(
            config,
            output_dir,
            pool,
            strategy=FLAGS.strategy,
            others=FLAGS.also,
            trials=FLAGS.trials,
            data_dir=FLAGS.data_dir,
            flags=flags.typed("data_dir", "tpu", "num_gpus"),
        )
    best = tune.write_tuning(config, space, rows, output_dir)
    table = tune.trials_table(rows).drop(columns="trial")
    table[["accuracy", "ece"]] *= 100
    print(f"\n{objective(config)} on {config.data.name}, calibration split (%)")
    print(table.to_string(index=False, float_format="{:.4g}".format))
    if any(row["failure"] for row in rows):
        print("\nThe same command tries the failed trials again.")
    print(f"\nBest: {best['flags']}")
    print(f"Everything is in {output_dir}")


if __name__ == "__main__":
    flags.run(main)
