"""Files of a run, on a disk or in a bucket: whole or not there.

Paths are local ones, or those of a bucket: `gs://bucket/run`. They become
`etils.epath.Path`, which has the methods of `pathlib.Path` for both.
"""

import os

from etils import epath
from etils.epath import backend
from etils.epath import gpath


@epath.register_path_cls("ram://")
class _MemoryPath(gpath.PosixGPath):
    """TensorFlow's file system in memory, which `epath` has no path for."""

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
    """Returns a path as an `epath.Path`.

    Args:
        path: A text, which may begin with `gs://`, or a path.

    Example:
        >>> (as_path("gs://bucket/run") / "results.json").parent
        PosixGPath('gs://bucket/run')
    """
    return epath.Path(path)


def write_bytes(path, content):
    """Writes a file so that it is there whole or not at all.

    Folders that are missing are made.

    Args:
        path: Local or of a bucket.
        content: The bytes.
    """
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another ending, so that a half-written file is never taken for one.
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        if "://" not in os.fspath(path):
            # Else a crash of the machine might leave the name without content.
            os.fsync(file.fileno())
    temporary.replace(path)


def write_text(path, text):
    """Writes a text as `write_bytes` does, in UTF-8.

    Args:
        path: Local or of a bucket.
        text: The text.

    Example:
        >>> import tempfile
        >>> path = as_path(tempfile.mkdtemp()) / "runs" / "notes.txt"
        >>> write_text(path, "whole")
        >>> path.read_text(), [file.name for file in path.parent.iterdir()]
        ('whole', ['notes.txt'])
    """
    write_bytes(path, text.encode())
