"""A worker with cheap jobs, as a process: for the tests of shared studies.

python -m tests.experiments.cheap_worker STORAGE LOG JOBS SECONDS
"""

import os
import sys
import time

from caltrain_tf.experiments.storage import import_optuna
from caltrain_tf.experiments.storage import open_storage
from caltrain_tf.experiments.work_queue import WorkQueue


def open_queue(url, **options):
    optuna = import_optuna()
    storage = open_storage(url)
    study = optuna.create_study(
        study_name="cheap",
        storage=storage,
        directions=["minimize", "maximize"],
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(),
    )
    distribution = optuna.distributions.FloatDistribution(0, 100)
    return WorkQueue(
        study,
        storage,
        ["ece", "accuracy"],
        {"x": distribution},
        **{"poll_seconds": 0.05, "beat_seconds": 0.1, **options},
    )


def make_jobs(count):
    return {f"x={x}": {"x": float(x)} for x in range(count)}


def make_work(log, seconds):
    def work(name, params):
        # Short appends are not torn apart.
        with open(log, "a") as file:
            file.write(f"start {name} {os.getpid()}\n")
        time.sleep(seconds)
        with open(log, "a") as file:
            file.write(f"end {name} {os.getpid()}\n")
        return {"ece": params["x"] / 100, "accuracy": 0.9}

    return work


if __name__ == "__main__":
    url, log, count, seconds = sys.argv[1:]
    queue = open_queue(url)
    outcomes = queue.run(make_jobs(int(count)), make_work(log, float(seconds)))
    print(sorted(name for name in outcomes))
