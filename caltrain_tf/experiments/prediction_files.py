"""Files of predictions: the arrays `logits` and `labels` of a set."""

import io
import zipfile

import numpy as np

from caltrain_tf import files, inputs


def save(path, logits, labels, dtype="float32"):
    """Writes an `.npz` file atomically, with logits in float32 or float16."""
    logits, labels = inputs.read(
        rounded(logits, dtype), labels, from_logits=True, name="logits"
    ).whole()
    content = io.BytesIO()
    np.savez(
        content,
        logits=np.asarray(logits, dtype),
        labels=np.asarray(labels, "int64"),
    )
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
        np.asarray(logits, np.float32), labels, from_logits=True, name="logits"
    ).whole()


def rounded(logits, dtype):
    """Returns logits in float32, as if they were stored and read again."""
    logits = np.asarray(logits, np.float32)
    if dtype != "float16":
        return logits
    if np.abs(logits[np.isfinite(logits)]).max(initial=0) > 65504:
        raise ValueError(
            "`logits` must be within 65504 of 0 to be kept as float16. "
            "Received: larger ones"
        )
    return logits.astype(np.float16).astype(np.float32)
