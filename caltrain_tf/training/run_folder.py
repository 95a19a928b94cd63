"""The folder of a run: one configuration, one process at a time."""

import errno
import fcntl
import json
import os
import time

import tensorflow as tf

from caltrain_tf import files

# Errors of `flock` if another process holds the lock.
_IN_USE = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)


class RunFolder:
    """The output folder of a run, locked by this process while it is open.

    The first run writes `config.json`. A later run can continue in the folder
    only with the same configuration. The lock is released when the process
    ends, for whatever reason. Buckets (`gs://...`) have no locks; everything
    else is the same.

    Args:
        path: The folder, which is created if it does not exist.
        config: The configuration, of JSON types; tuples count as lists.
        chief: Whether this process may write; only one of several workers may.

    Example:
        >>> import caltrain_tf as ct, tempfile
        >>> path = tempfile.mkdtemp()
        >>> with ct.training.RunFolder(path, {"rate": 0.1}) as run:
        ...     sorted(tf.io.gfile.listdir(run.path))
        ['.lock', 'config.json']
        >>> ct.training.RunFolder(path, {"rate": 0.2}).__enter__()
        Traceback (most recent call last):
        ...
        ValueError: The folder ... of another configuration: rate=0.1 there...
    """

    def __init__(self, path, config=None, chief=True):
        self.path = os.fspath(path)
        self.config = _as_json_types({} if config is None else config)
        self.chief = chief
        self._lock = None

    def __enter__(self):
        """Takes the lock and compares or writes the configuration."""
        if self.chief:
            try:
                files.as_path(self.path).mkdir(parents=True, exist_ok=True)
            except (OSError, tf.errors.OpError) as error:
                raise ValueError(
                    f"The folder cannot be made: {error}. Take another "
                    f"`output_dir`. Received: {self.path!r}"
                ) from error
            self._take_lock()
            try:
                self._check_config()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error):
        """Releases the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def file(self, *names):
        """Returns the path of a file in the folder."""
        return os.path.join(self.path, *names)

    def _take_lock(self):
        if "://" in self.path:
            return
        lock = os.open(self.file(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            is_free = _try_lock(lock, self.path)
        except BaseException:
            os.close(lock)
            raise
        if not is_free:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise ValueError(
                f"The folder {self.path!r} is in use by another process"
                f"{f' ({holder})' if holder else ''}. Wait for its end, or "
                "take another `output_dir`."
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _check_config(self):
        path = files.as_path(self.file("config.json"))
        if not path.exists():
            files.write_text(path, json.dumps(self.config, indent=2) + "\n")
            return
        check_config(self.path, self.config)


def check_config(path, config):
    """Raises if a run's folder has another configuration, naming the keys.

    Args:
        path: The folder of a run, with its `config.json`.
        config: The configuration, of JSON types; tuples count as lists.
    """
    there = json.loads((files.as_path(path) / "config.json").read_text())
    differing = _differences(there, _as_json_types(config))
    if differing:
        raise ValueError(
            f"The folder {os.fspath(path)!r} holds a run of another "
            f"configuration: {'; '.join(differing)}. Take another "
            "`output_dir`, or the same configuration to go on."
        )


def wait_until_free(path, seconds):
    """Waits until no process holds a run's folder, or until a timeout.

    Args:
        path: The folder.
        seconds: The longest time to wait.
    """
    end = time.monotonic() + seconds
    try:
        lock = os.open(os.path.join(path, ".lock"), os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        while not _try_lock(lock, path) and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        os.close(lock)


def _try_lock(lock, path):
    """Returns whether this process has acquired the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _IN_USE:
            return False
        raise ValueError(
            f"The folder cannot be locked: {error.strerror}. Network file "
            "systems may have no locks. Take another `output_dir`. "
            f"Received: {os.fspath(path)!r}"
        ) from error
    return True


def _as_json_types(config):
    try:
        return json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`config` must be of JSON types: {error}. "
            f"Received: config={config!r}"
        ) from error


def _differences(there, here):
    there, here = _flat(there), _flat(here)
    absent = "absent"
    return [
        f"{key}={there.get(key, absent)} there, {here.get(key, absent)} here"
        for key in sorted({*there, *here})
        if there.get(key, absent) != here.get(key, absent)
    ]


def _flat(config, prefix=""):
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value)
    return flat
