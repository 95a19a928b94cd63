"""A run that takes long: `python -m tests.training.preempted_run PATH WHERE`.

It tells on standard output where it is, so that a test can send a signal in the
middle of that. Without the signal, it would train or evaluate for hours.
"""

import sys
import time

import tensorflow as tf

from tests.training import tiny

FOREVER = 10**6


def main():
    path, where = sys.argv[1:]
    options = {"dataset_steps": FOREVER}
    train, evaluations = slow("step").repeat(), {}
    if where == "evaluation":
        train, options = tiny.dataset(), {}
        evaluations = {"test": slow("evaluation").repeat()}
    elif where == "hang":
        train = slow("step", FOREVER).repeat()
    elif where == "save":
        options["checkpoint_every_steps"] = 5
        write_slowly()
    # Far more steps at once than there may be.
    trainer = tiny.trainer(steps_per_execution=FOREVER)
    trainer.fit(
        train, 1, evaluations=evaluations, run=path, verbose=False, **options
    )


def slow(what, seconds=0.05):
    """Batches that say when they are read, and take their time."""

    def wait(x):
        tell(what)
        time.sleep(seconds)
        return x

    def wait_for(x, y):
        return tf.ensure_shape(tf.py_function(wait, [x], x.dtype), x.shape), y

    return tiny.dataset().map(wait_for)


def write_slowly():
    """Makes a checkpoint be on its way for a while."""
    save = tf.train.CheckpointManager.save

    def save_slowly(manager, checkpoint_number, options):
        def wait(path):
            tell(f"save {path.rpartition('-')[2]}")
            time.sleep(3)

        options.experimental_write_callbacks.insert(0, wait)
        return save(manager, checkpoint_number, options=options)

    tf.train.CheckpointManager.save = save_slowly


def tell(what):
    print(what, flush=True)


if __name__ == "__main__":
    main()
