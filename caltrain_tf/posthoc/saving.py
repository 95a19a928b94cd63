"""Calibrators as JSON files."""

import json
import os
import tempfile

import numpy as np

FORMAT = "caltrain_tf.posthoc"
VERSION = 1


def save(calibrator, path):
    """Writes a fitted calibrator to a file; see `Calibrator.save`.

    The file is complete at any moment: it is written under another name and
    renamed.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(calibrator).__name__,
        "options": calibrator.get_config(),
        "fitted": {
            name: np.asarray(getattr(calibrator, name)).tolist()
            for name in calibrator.fitted_names
        },
    }
    path = os.fspath(path)
    descriptor, temporary = tempfile.mkstemp(
        dir=os.path.dirname(path) or ".", prefix=".posthoc", suffix=".json"
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path, classes):
    """Reads what `save` wrote.

    Args:
        path: Of the file.
        classes: The calibrators' classes by name.

    Returns:
        A fitted calibrator.
    """
    content = _parse(path)
    if content.get("version") != VERSION:
        raise ValueError(
            f"`path` must be of version {VERSION}, which this release of "
            f"caltrain_tf reads. Received: version={content.get('version')!r} "
            f"in {path}"
        )
    name = content.get("class")
    if name not in classes:
        raise ValueError(
            f"`path` must hold one of {', '.join(classes)}. "
            f"Received: class={name!r} in {path}"
        )
    try:
        calibrator = classes[name](**content["options"])
        fitted = content["fitted"]
        for key in calibrator.fitted_names:
            setattr(calibrator, key, _value(fitted[key]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`path` must hold a complete {name}. Received: {path}, where "
            f"{type(error).__name__}: {error}"
        ) from error
    return calibrator


def _parse(path):
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except ValueError as error:
        raise ValueError(
            "`path` must be a whole JSON file written by `save`. "
            f"Received: {path}, where {error}"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(
            f"`path` must be a file written by `save`. Received: {path}, "
            f"which has no format={FORMAT!r}"
        )
    return content


def _value(value):
    array = np.asarray(value)
    if array.dtype.kind not in "fi" or not np.all(np.isfinite(array)):
        raise ValueError(f"{value!r} is not made of finite numbers")
    return array if array.ndim else array.item()
