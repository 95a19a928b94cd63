"""Child processes: one run each, with a log and a share of the processor."""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

PACKAGE = pathlib.Path(__file__).parents[1]
COMMAND = (sys.executable, "-m", "caltrain_tf.experiments.one_run")
LOG_NAME = "log.txt"
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Child:
    """A process that does a job and writes to `log.txt` of its run's folder.

    It is in a session of its own: Ctrl-C does not reach it, `stop` does.

    Args:
        folder: The run's folder, which is made where it is missing.
        job: What is handed over as a line of JSON on standard input.
        environment: Environment variables.
        command: The program and its arguments.
    """

    def __init__(self, folder, job, environment, command=COMMAND):
        """Starts it."""
        os.makedirs(folder, exist_ok=True)
        self.log_path = os.path.join(folder, LOG_NAME)
        self.started = time.monotonic()
        with open(self.log_path, "ab") as log:
            now = datetime.datetime.now().astimezone()
            log.write(f"--- {now:%Y-%m-%d %H:%M:%S%z}\n".encode())
            log.flush()
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            # Left open: its end tells the child that this process is gone.
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended already; `poll` says how.

    @property
    def seconds(self):
        """How long ago it started."""
        return time.monotonic() - self.started

    def poll(self):
        """Returns None while it runs, then `""` or how it failed."""
        code = self._process.poll()
        if code is None:
            return None
        self._close()
        if code == 0:
            return ""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def last_line(self):
        """The last line that it wrote."""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").split("\n")
        lines = [line.strip() for line in lines if line.strip()]
        return lines[-1] if lines else ""

    def stop(self, number=signal.SIGTERM):
        """Asks it to end, with a checkpoint where it is training."""
        self._process.send_signal(number)

    def wait(self):
        """Waits for its end."""
        self._process.wait()
        self._close()

    def _close(self):
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass


def _num_processors():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_environment(parallel):
    """Environment variables of each of several processes at a time.

    The processor's threads are divided among them. What the user has set stays.

    Args:
        parallel: How many processes run at a time.
    """
    threads = str(max(1, _num_processors() // parallel))
    path = os.pathsep.join(
        filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")])
    )
    shared = dict.fromkeys((*_THREADS, "OMP_NUM_THREADS"), threads)
    return {
        **shared,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **os.environ,
        # The package of this process, and not one of the current folder.
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
