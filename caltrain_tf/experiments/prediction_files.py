"""Files of predictions: the arrays `logits` and `labels` of a set."""

import io
import zipfile

import numpy as np

from caltrain_tf import files, inputs


def save(path, logits, labels):
    """Writes an `.npz` file atomically, with logits in float32."""
    logits, labels = inputs.read(
        np.asarray(logits, "float32"), labels, from_logits=True, name="logits"
    ).whole()
    content = io.BytesIO()
    np.savez(content, logits=logits, labels=np.asarray(labels, "int64"))
    files.write_bytes(path, content.getvalue())


def load(path):
    """Returns `(logits, labels)` of a file, with logits in float32."""
    content = io.BytesIO(files.as_path(path).read_bytes())
    try:
        with np.load(content, allow_pickle=False) as arrays:
            logits, labels = arrays["logits"], arrays["labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise ValueError(
            "`path` must be a predictions file with the arrays `logits` and "
            f"`labels`: {e}. Received: path={str(path)!r}"
        ) from e
    return inputs.read(
        np.asarray(logits, "float32"), labels, from_logits=True, name="logits"
    ).whole()
