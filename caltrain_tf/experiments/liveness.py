"""Which workers of a study are still there."""

import os
import socket
import threading
import time

BEAT = "beat"
WORKER = "worker"


def worker_name(pid=None):
    """Names a process: machine, process number and when it started.

    Args:
        pid: The process; this one if None.

    Returns:
        Text without blanks. Another process of the same number, or one that
        another container counts, has another name.
    """
    pid = os.getpid() if pid is None else pid
    return f"{_machine()}/{pid}/{_start_time(pid)}"


def is_dead(name):
    """Whether a process has surely ended: it is one of this machine's."""
    machine, pid, _ = name.rsplit("/", 2)
    return machine == _machine() and worker_name(int(pid)) != name


class Heartbeat:
    """Says every few seconds that this process works on a trial.

    Args:
        trial: An `optuna.Trial`.
        seconds: Between two beats.
    """

    def __init__(self, trial, seconds):
        """See the class."""
        self._trial = trial
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self):
        """Says who works on the trial, and starts to beat."""
        self._trial.set_user_attr(WORKER, worker_name())
        self._thread.start()
        return self

    def __exit__(self, *error):
        """Stops."""
        self._stop.set()
        self._thread.join()

    def _beat(self):
        count = 0
        while not self._stop.wait(self._seconds):
            count += 1
            try:
                self._trial.set_user_attr(BEAT, count)
            except Exception:
                # The database is away, or the trial was taken from us. The
                # work goes on; its end is told, or is refused, in one place.
                continue


class Watch:
    """Finds out which running trials have lost their worker.

    A worker of this machine is gone when its process is. One of another is gone
    when its beat stays the same for `seconds` on *our* clock, so that clocks
    need not agree.

    Args:
        seconds: How long a beat may stay the same.
    """

    def __init__(self, seconds):
        """Nothing has been seen yet."""
        self._seconds = seconds
        self._seen = {}

    def is_gone(self, trial):
        """Whether a running trial's worker is gone.

        Args:
            trial: A frozen trial as just read.
        """
        attributes = trial.user_attrs
        if WORKER in attributes and is_dead(attributes[WORKER]):
            return True
        beat = (attributes.get(WORKER), attributes.get(BEAT))
        now = time.monotonic()
        before, since = self._seen.get(trial.number, (None, now))
        if before != beat:
            since = now
        self._seen[trial.number] = beat, since
        return now - since > self._seconds


def _machine():
    try:
        # Containers of one name number their processes apart.
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        space = ""
    return f"{socket.gethostname()}:{space}"


def _start_time(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            # The program's name, in parentheses, may hold anything.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "" if _exists(pid) else "ended"
    # A zombie does no work.
    return "ended" if fields[0] == "Z" else fields[19]


def _exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
