r"""Trains all primary x secondary losses x seeds, or selected objectives.

python baselines/study.py --config=configs/cifar10.py --output_dir=studies/paper
python baselines/study.py --config=configs/quickstart.py \
      --output_dir=studies/small --seeds=0,1,2 --parallel=2 --shift \
      --objectives=nll,focal+sb_ece,nll+s_avuc-interleaved
python baselines/study.py --config=configs/cifar10.py --ray=auto --run_cpus=8 \
      --run_gpus=1 --output_dir=studies/paper

Each run has its own process and its own folder,
`<output_dir>/<objective>/seed<k>`; the output of the process is in `log.txt`.
The same command resumes a study that was stopped at any moment and skips
finished runs. A run that fails does not stop the others. `--shift` keeps its
predictions in `predictions/` of each run.
"""

import command_line
from absl import flags
from ml_collections import config_flags

CONFIG = command_line.define_config(
    "cifar10.py", "Configuration file of all runs."
)
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the study.", required=True
)
PRIMARIES = flags.DEFINE_list(
    "primaries",
    None,
    "Primary losses; by default those of the paper: nll, focal, mse.",
)
SECONDARIES = flags.DEFINE_list(
    "secondaries",
    None,
    "Secondary losses, or none; by default none and those of the paper: mmce, "
    "avuc, avuc_gs, sb_ece, s_avuc.",
)
OBJECTIVES = flags.DEFINE_list(
    "objectives",
    None,
    "Objectives to train instead of all pairs, such as nll,focal+sb_ece,"
    "nll+s_avuc-interleaved.",
)
SEEDS = flags.DEFINE_list(
    "seeds", list("0123456789"), "Seeds of each objective."
)
TUNED = flags.DEFINE_string(
    "tuned",
    None,
    "Settings of single objectives, which override --config.x.y: the result of "
    "baselines/tune.py (a best.json, or a folder of them), or a JSON file such "
    'as {"focal+sb_ece": {"loss.beta": 0.3}}.',
)
SHIFT = flags.DEFINE_bool("shift", False, "Also measure each run under shift.")
SHIFT_CORRUPTIONS = flags.DEFINE_list(
    "shift_corruptions",
    None,
    "With --shift, corruptions to evaluate; all 15 by default.",
)
SHIFT_SEVERITIES = flags.DEFINE_list(
    "shift_severities", list("12345"), "With --shift, severities to evaluate."
)
SHIFT_EXAMPLES = flags.DEFINE_integer(
    "shift_examples",
    None,
    "With --shift, use only this many first examples of each test set.",
)
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of TensorFlow Datasets."
)
TPU = flags.DEFINE_string("tpu", None, "`local`, or the name of a TPU.")
NUM_GPUS = flags.DEFINE_integer(
    "num_gpus", None, "Number of GPUs of each run on this machine."
)
command_line.define_pool()
# What a study varies, by the flag that says how.
_VARIED = {
    "seed": "seeds",
    "loss.primary": "objectives",
    "loss.secondary": "objectives",
    "interleaved.enabled": "objectives",
}


def read_runs():
    """The runs that the flags ask for."""
    from caltrain_tf.data import corruptions
    from caltrain_tf.experiments import config, shift

    for key in config_flags.get_override_values(flags.FLAGS["config"]):
        if key in _VARIED:
            raise ValueError(
                f"--config.{key} is what a study varies: --{_VARIED[key]}."
            )
    objectives = OBJECTIVES.value
    if objectives is None:
        objectives = config.cross(
            PRIMARIES.value or config.PRIMARIES,
            SECONDARIES.value or config.SECONDARIES,
        )
    elif PRIMARIES.present or SECONDARIES.present:
        raise ValueError("Pass --objectives, or --primaries and --secondaries.")
    tuned = {}
    if TUNED.value is not None:
        tuned = config.read_tuned(TUNED.value, CONFIG.value.data.name)
        without = [name for name in objectives if name not in tuned]
        print(f"Not tuned: {', '.join(without) or 'none'}")
    measured = None
    if SHIFT.value:
        measured = shift.shift_options(
            SHIFT_CORRUPTIONS.value or corruptions.NAMES,
            command_line.read_integers(SHIFT_SEVERITIES),
            SHIFT_EXAMPLES.value,
        )
    return config.study_runs(
        CONFIG.value,
        objectives,
        command_line.read_integers(SEEDS),
        OUTPUT_DIR.value,
        tuned,
        data_dir=DATA_DIR.value,
        tpu=TPU.value,
        num_gpus=NUM_GPUS.value,
        shift=measured,
    )


def main(_):
    """Executes the runs, and prints their results."""
    from caltrain_tf.experiments import build, study

    runs = read_runs()
    # Here, and not in the log of every run.
    build.check([run.config for run in runs], DATA_DIR.value)
    left = study.unfinished(runs)
    print(f"{len(runs)} runs in {OUTPUT_DIR.value}", flush=True)
    outcome = study.Outcome()
    if left:
        with command_line.open_pool() as pool:
            outcome = study.do_runs(runs, pool)
    if table := study.summary_table(runs):
        print(f"\n{table}")
    if outcome.failures:
        print("\nFailed runs, which the same command tries again:")
        print(*outcome.failures, sep="\n")
    print(f"\nEverything is in {OUTPUT_DIR.value}")
    if outcome.stopped_by is not None:
        print("Stopped; the same command goes on.")
        return 128 + outcome.stopped_by
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    command_line.run(main)
