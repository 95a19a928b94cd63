"""Files of predictions: the arrays `logits` and `labels` of a set."""

import numpy as np

from caltrain_tf import files, inputs


def save(path, logits, labels):
    """Writes an `.npz` file atomically, with logits in float32."""
    logits, labels = inputs.read(
        np.asarray(logits, "float32"), labels, from_logits=True, name="logits"
    ).whole()
    labels = np.asarray(labels, "int64")
    files.write_npz(path, logits=logits, labels=labels)


def load(path):
    """Returns `(logits, labels)` of a file, with logits in float32."""
    arrays = files.read_npz(path)
    if not {"logits", "labels"} <= set(arrays):
        raise ValueError(
            "`path` must be a predictions file with the arrays `logits` and "
            f"`labels`. Received: path={str(path)!r} with {list(arrays)}"
        )
    logits = np.asarray(arrays["logits"], "float32")
    return inputs.read(
        logits, arrays["labels"], from_logits=True, name="logits"
    ).whole()
