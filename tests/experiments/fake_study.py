"""A worker of a study of runs that take no time: folder, storage, seeds..."""

import functools
import pathlib
import sys

from caltrain_tf.experiments.matrix import Setting
from caltrain_tf.experiments.storage_queue import StorageQueue
from caltrain_tf.experiments.study import Study

FAKE_RUN = pathlib.Path(__file__).with_name("fake_run.py")


def make_settings(folder, acts):
    return [
        Setting(
            "nll",
            seed,
            {"seed": seed, "epochs": 4, "act": act},
            str(pathlib.Path(folder) / "nll" / f"seed{seed}"),
        )
        for seed, act in enumerate(acts)
    ]


def make_study(folder, storage, acts, parallel=1, shift=None, **options):
    return Study(
        make_settings(folder, acts),
        parallel=parallel,
        shift=shift,
        command=(sys.executable, str(FAKE_RUN)),
        make_queue=functools.partial(
            StorageQueue,
            storage=storage,
            name="study",
            parallel=parallel,
            shift=shift,
        ),
        **options,
    )


if __name__ == "__main__":
    folder, storage, *acts = sys.argv[1:]
    outcome = make_study(folder, storage, acts).run()
    print("failures", [failure.name for failure in outcome.failures])
