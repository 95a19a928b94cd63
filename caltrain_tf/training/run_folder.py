"""The folder of a run: one configuration, one process at a time."""

import contextlib
import json
import os

import filelock
import tensorflow as tf

from caltrain_tf import files


class RunFolder(contextlib.ExitStack):
    """The output folder of a run, locked by this process while it is open.

    Runs in the folder must have the configuration of the first one. The lock
    ends with the process; buckets have none. Only the `chief` writes.
    """

    def __init__(self, path, config=None, chief=True):
        super().__init__()
        self.path, self.chief = os.fspath(path), chief
        self.config = _as_json_types(config or {})

    def __enter__(self):
        """Takes the lock and compares or writes the configuration."""
        if not self.chief:
            return self
        try:
            files.as_path(self.path).mkdir(parents=True, exist_ok=True)
        except (OSError, tf.errors.OpError) as error:
            raise ValueError(
                f"The folder cannot be made: {error}. Received: {self.path!r}"
            ) from error
        if "://" not in self.path:
            lock = _acquire(self.path, timeout=0)
            self.callback(lock.release)
        try:
            file = files.as_path(self.file("config.json"))
            if file.exists():
                check_config(self.path, self.config)
            else:
                files.write_text(file, json.dumps(self.config, indent=2) + "\n")
        except BaseException:
            self.close()
            raise
        return self

    def __fspath__(self):
        """Returns the path of the folder."""
        return self.path

    def file(self, *names):
        """Returns the path of a file in the folder."""
        return os.path.join(self.path, *names)


def check_config(path, config):
    """Raises if a run has another configuration, and names the keys."""
    there = files.read_json(files.as_path(path) / "config.json")
    old, new = (
        {key: json.dumps(value) for key, value in flatten(each).items()}
        for each in (there, _as_json_types(config))
    )
    differing = [
        f"{key}={old.get(key, 'absent')} there, {new.get(key, 'absent')} here"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if differing:
        raise ValueError(
            f"{os.fspath(path)!r} holds a run of another configuration: "
            f"{'; '.join(differing)}. Take another `output_dir`, or the same "
            "configuration to go on."
        )


def flatten(config, prefix=""):
    """Returns the settings of a configuration by their dotted keys."""
    flat = {}
    for key in config:
        if hasattr(config[key], "keys"):
            flat |= flatten(config[key], f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = config[key]
    return flat


def wait_until_free(path):
    """Waits until no process holds a run's folder."""
    if os.path.exists(os.path.join(path, ".lock")):
        _acquire(path, timeout=-1).release()


def _acquire(path, timeout):
    file = os.path.join(path, ".lock")
    # A lock belongs to the process, whichever thread acquires or releases it.
    lock = filelock.FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=timeout)
    except filelock.Timeout:
        raise ValueError(
            f"The folder {path!r} is in use by another process. "
            "Wait for its end, or take another `output_dir`."
        ) from None
    except OSError as error:
        raise ValueError(
            f"The folder cannot be locked: {error.strerror}. Network file "
            "systems may have no locks; take another `output_dir`. "
            f"Received: {os.fspath(path)!r}"
        ) from error
    return lock


def _as_json_types(config):
    return json.loads(json.dumps(config, allow_nan=False))
