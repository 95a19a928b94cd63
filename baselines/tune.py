r"""Tunes objectives as the paper does: one parameter after the other.

python baselines/tune.py --config=configs/cifar10.py --objectives=paper \
      --output_dir=tuning/cifar10 --ray=auto --run_gpus=1
python baselines/tune.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece --config.search.beta="(0.3, 1.0)" \
      --config.search.temperature="()" --config.search.l2="()"

The script tunes the threshold of the secondary loss, then its temperature, its
weight beta and the weight decay, with the values of `config.search`. The best
trial has the lowest ECE on the calibration split among those that give up less
than one percentage point of accuracy. A trial is a run in
`<folder of the objective>/trials/<values>`. The same command resumes stopped
trials and retries failed trials.
`--tuned=<output_dir>` of the other scripts takes the result.
"""

import os

import flags
import pool_flags

flags.define(*flags.OBJECTIVE)
pool_flags.define()
flags.define_config("cifar10.py")
FLAGS = flags.FLAGS
flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the tuning; tuning/<primary>+<secondary> by default. With "
    "--objectives, the folder that holds one for each; tuning by default.",
)
flags.DEFINE_list(
    "objectives",
    None,
    "Objectives to tune, such as nll,focal+sb_ece; `paper` for those of the "
    "paper's table of results; that of --primary and --secondary by default.",
)


def main(_):
    """Tunes as the flags say, and prints the best values."""
    from caltrain_tf.experiments import build, tune
    from caltrain_tf.experiments import config as settings

    config = FLAGS.config
    losses = FLAGS.primary, FLAGS.secondary, FLAGS.interleaved
    settings.set_objective(config, *losses)
    names = FLAGS.objectives or [settings.objective(config)]
    names = settings.expand_objectives(names, config.data.name)
    configs = [settings.with_objective(config, name) for name in names]
    # Here, and not in the log of every trial.
    build.check(configs, FLAGS.data_dir)
    folders = [os.path.join(FLAGS.output_dir or "tuning", n) for n in names]
    if FLAGS.output_dir and not FLAGS.objectives:
        folders = [FLAGS.output_dir]
    spaces = [tune.search_space(own, FLAGS.data_dir) for own in configs]
    with pool_flags.open_pool() as pool:
        typed = pool_flags.of_runs()
        results = tune.tune(configs, spaces, folders, pool, typed)
    failures = []
    tuned = zip(configs, spaces, results, folders, strict=True)
    for own, space, rows, folder in tuned:
        try:
            best = tune.write_tuning(own, space, rows, folder)
        except ValueError as error:
            failures.append(f"{settings.objective(own)}: {error}")
            continue
        table = tune.trials_table(rows).drop(columns="trial")
        table[["accuracy", "ece"]] *= 100
        name, data = best["objective"], best["data"]
        print(f"\n{name} on {data}, calibration split (%)")
        print(table.to_string(index=False, float_format="{:.4g}".format))
        print(f"\nBest: {best['flags']}")
    if any(row["failure"] for rows in results for row in rows):
        print("\nThe same command tries the failed trials again.")
    print(f"Everything is in {', '.join(folders)}")
    return "\n".join(failures) or None


if __name__ == "__main__":
    flags.run(main)
