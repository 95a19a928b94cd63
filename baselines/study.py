r"""Trains objectives x seeds, each in a process and a folder of its own.

python baselines/study.py --config=configs/cifar10.py --output_dir=studies/paper
python baselines/study.py --config=configs/quickstart.py \
      --output_dir=studies/small --seeds=0,1,2 --parallel=2 --shift \
      --objectives=nll,focal+sb_ece,nll+s_avuc-interleaved
python baselines/study.py --config=configs/cifar10.py --ray=auto --run_cpus=8 \
      --run_gpus=1 --output_dir=studies/paper

A run is `baselines/*/train.py` in `<output_dir>/<objective>/seed<k>`, with its
output in `log.txt`. The same command resumes a study that was stopped at any
moment and skips finished runs. A run that fails does not stop the others.
"""

import shlex

import flags
import pool_flags

flags.define_config("cifar10.py")
flags.define("tuned")
pool_flags.define()
FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", None, "Folder of the study.", required=True)
flags.DEFINE_list(
    "objectives",
    ["paper"],
    "Objectives to train, such as nll,focal+sb_ece,nll+s_avuc-interleaved; "
    "`paper` for those of the paper's table of results.",
)
flags.define_integers("seeds", "0,1,2,3,4,5,6,7,8,9", "Seeds per objective.")
flags.DEFINE_bool("shift", False, "Also measure each run under shift.")
flags.DEFINE_string(
    "shift_flags",
    "",
    "With --shift, flags of baselines/shift_benchmark.py, such as "
    "'--generated --severities=1,5'.",
)


def main(_):
    """Executes the runs, and prints their results."""
    from caltrain_tf.experiments import build, study
    from caltrain_tf.experiments import config as settings

    varied = ("seed", "loss.primary", "loss.secondary", "interleaved.enabled")
    for key in flags.config_flags.get_override_values(FLAGS["config"]):
        if key in varied:
            text = f"--config.{key} varies in a study: --objectives, --seeds."
            raise ValueError(text)
    if FLAGS.shift_flags and not FLAGS.shift:
        raise ValueError("--shift_flags needs --shift.")
    config, tuned = FLAGS.config, {}
    objectives = settings.expand_objectives(FLAGS.objectives, config.data.name)
    if FLAGS.tuned is not None:
        tuned = settings.read_tuned(FLAGS.tuned, config.data.name)
        without = [name for name in objectives if name not in tuned]
        print(f"Not tuned: {', '.join(without) or 'none'}")
    runs = study.study_runs(
        config,
        objectives,
        FLAGS.seeds,
        FLAGS.output_dir,
        tuned,
        pool_flags.of_runs(),
        shlex.split(FLAGS.shift_flags) if FLAGS.shift else None,
    )
    # Here, and not in the log of every run.
    build.check([run.config for run in runs], FLAGS.data_dir)
    print(f"{len(runs)} runs in {FLAGS.output_dir}", flush=True)
    failures = {}
    try:
        if study.unfinished(runs):
            with pool_flags.open_pool() as pool:
                failures = study.do_runs(runs, pool)
    finally:
        print(f"\n{study.summary_table(runs)}\n")
    for run in failures:
        print(f"Failed; the same command tries again: {run.folder}/log.txt")
    print(f"Everything is in {FLAGS.output_dir}")
    return 1 if failures else 0


if __name__ == "__main__":
    flags.run(main)
