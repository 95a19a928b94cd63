"""Predictions files: what a network said, kept for every later stage."""

import os
import pathlib
import zipfile

import numpy as np

from caltrain_tf.metrics.inputs import check_predictions


def save_predictions(path, logits, labels):
    """Writes `logits` and `labels` as an `.npz` file, whole or not at all.

    Args:
        path: The file.
        logits: `(examples, classes)`, kept as float32.
        labels: Class ids `(examples,)`, kept as int64.
    """
    logits, labels = check_predictions(
        np.asarray(logits, "float32"), labels, from_logits=True, name="logits"
    )
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not ending in .npz, so that a half-written file is never taken for one.
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "wb") as file:
        np.savez(file, logits=logits, labels=np.asarray(labels, "int64"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_predictions(path):
    """Reads a file of `save_predictions`.

    Args:
        path: The file.

    Returns:
        `(logits, labels)`.
    """
    try:
        # Opened here: NumPy leaves a file that it cannot read open.
        with (
            open(path, "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            logits, labels = arrays["logits"], arrays["labels"]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise ValueError(
            "`path` must be a predictions file with the arrays `logits` and "
            f"`labels`: {e}. Received: path={str(path)!r}"
        ) from e
    return check_predictions(logits, labels, from_logits=True, name="logits")
