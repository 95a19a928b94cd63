"""One run of a study, in a process of its own.

Its job comes as a line of JSON on standard input, which the study then holds
open: where it ends, the study is gone, and the run stops as SIGTERM stops it,
with a checkpoint. Nobody would read its results, and whoever starts the study
again would find the folder taken.
"""

import json
import os
import signal
import sys
import threading

import ml_collections

from caltrain_tf import training
from caltrain_tf.experiments import run_state
from caltrain_tf.experiments import shift
from caltrain_tf.experiments import train

_SECONDS_FOR_A_CHECKPOINT = 120


def run(job):
    """Trains, and measures under shift if asked; what is there is kept.

    Args:
        job: A dictionary of `folder`, `config`, `data_dir`, `tpu`, `num_gpus`
            and `shift`, the last of `run_state.shift_options`.
    """
    folder = job["folder"]
    # The process of a study that was killed is still writing a checkpoint.
    training.wait_until_free(folder, _SECONDS_FOR_A_CHECKPOINT)
    config = ml_collections.ConfigDict(job["config"])
    if not run_state.is_finished(folder):
        strategy = training.get_strategy(
            tpu=job["tpu"], num_gpus=job["num_gpus"]
        )
        train(config, folder, job["data_dir"], strategy)
    if job["shift"] is not None:
        shift.benchmark_run(folder, job["data_dir"], **job["shift"])


def main():
    """Does the job of standard input."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_study, daemon=True).start()
    run(job)


def _stop_with_study():
    # Not `sys.stdin`: a thread that waits for it holds a lock of the
    # interpreter's, which then fails to end.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
