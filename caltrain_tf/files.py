"""Paths and atomic writes, on a disk or in a bucket (`gs://...`)."""

import io
import json
import os

import numpy as np
from etils import epath
from etils.epath import backend, gpath


@epath.register_path_cls("ram://")
class _MemoryPath(gpath.PosixGPath):
    """Path in TensorFlow's in-memory file system, which `epath` lacks."""

    @property
    def _uri_scheme(self):
        return "ram"

    @property
    def _backend(self):
        return backend.tf_backend

    @property
    def _path_str(self):
        return "ram://" + "/".join(self.parts[1:])


def as_path(path):
    """Returns a path, maybe of a bucket, as an `epath.Path`."""
    return epath.Path(path)


def write_bytes(path, content):
    """Writes a file completely or not at all; creates missing folders."""
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another suffix, so that a partial file is never taken for a complete one.
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        if "://" not in os.fspath(path):
            # Otherwise a crash of the machine could leave an empty file.
            os.fsync(file.fileno())
    temporary.replace(path)


def write_text(path, text):
    """Writes a text in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def read_json(path):
    """Returns the dictionary of a JSON file."""
    try:
        content = json.loads(as_path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dictionary. Received: {content}")
    return content


def read_npz(path, name="`path`"):
    """Returns the arrays of an `.npz` file as a dictionary."""
    # A file that cannot be read just now is not damaged.
    content = io.BytesIO(as_path(path).read_bytes())
    try:
        with np.load(content) as arrays:
            return dict(arrays)
    except Exception as error:  # Of many kinds, by what is damaged.
        raise ValueError(
            f"{name} must be an .npz file of arrays, as `numpy.savez` "
            f"writes it: {error}. Received: {os.fspath(path)!r}"
        ) from error


def write_npz(path, **arrays):
    """Writes arrays as an `.npz` file, as `write_bytes` does."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_bytes(path, content.getvalue())
