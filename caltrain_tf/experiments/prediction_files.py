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
    """Returns the `(logits, labels)` that `save` has written."""
    arrays = files.read_npz(path)
    if not {"logits", "labels"} <= arrays.keys():
        raise ValueError(f"{path} must hold logits and labels")
    return arrays["logits"], arrays["labels"]
