"""Executes runs in processes of their own, on this machine or on Ray.

Their output is in `log.txt` of a run's folder. They stop when their standard
input is closed, also by the end of the parent process.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import joblib

LOG = "log.txt"


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run that a pool executes."""

    name: str  # On the terminal, such as `focal+sb_ece seed 0`.
    config: dict
    folder: str  # Local or in a bucket.
    commands: tuple  # Scripts of the repository, each with its arguments.


class Outcome(NamedTuple):
    """How a run ended."""

    failure: str  # A text such as `exit code 1`; empty if the run succeeded.
    last_line: str  # Of its output.
    seconds: float


class _Pool:
    """Stops its runs when it is left, and kills them at a second Ctrl-C."""

    def __enter__(self):
        self._futures = []
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, KeyboardInterrupt | SystemExit):
            text = "Stopping the runs, with checkpoints. Again to kill them."
            print(text, file=sys.stderr)
        try:
            self._end(signal.SIGTERM)
        except (KeyboardInterrupt, SystemExit):
            self._end(signal.SIGKILL)

    def _end(self, number):
        self._stop(number)
        # `wait` does not return for futures that an executor has cancelled.
        left = [each for each in self._futures if not each.cancelled()]
        concurrent.futures.wait(left)

    def submit(self, run):
        """Returns a future of the `Outcome` of a run."""
        self._futures.append(self._start(run))
        return self._futures[-1]


class LocalPool(_Pool):
    """Executes `parallel` runs at a time, which share CPU threads and GPUs."""

    def __init__(self, root, parallel=1):
        self._root = root
        self._free = queue.SimpleQueue()
        threads = max(1, joblib.cpu_count() // parallel)
        for gpus in gpus_of_slots(parallel):
            self._free.put(_environment(root, threads, gpus))
        self._executor = concurrent.futures.ThreadPoolExecutor(parallel)
        self._signal = None

    def _start(self, run):
        return self._executor.submit(self._execute, run)

    def _stop(self, number):
        self._signal = number
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _execute(self, run):
        environment = self._free.get()
        try:
            return execute(run, self._root, environment, lambda: self._signal)
        finally:
            self._free.put(environment)


class RayPool(_Pool):
    """Executes runs on a Ray cluster, whose nodes get the repository.

    A run whose node dies resumes on another one from its last checkpoint.
    """

    def __init__(self, root, address, cpus=1, gpus=0, resources=None):
        self._ray = _connect_ray(root, address)
        needs = {"CPU": cpus, "GPU": gpus, **(resources or {})}
        there = self._ray.cluster_resources()
        if any(there.get(name, 0) < needs[name] for name in needs):
            print(f"No node has {needs} now; waiting.", file=sys.stderr)
        # Retries are of a run whose node or worker died.
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 20}
        task = self._ray.remote(resources=resources or {}, **options)
        self._task = task(_ray_task)
        # TensorFlow takes every GPU that it sees.
        self._arguments = cpus, None if gpus else "", os.getcwd()
        self._refs = []

    def __exit__(self, *error):
        """Also disconnects from the cluster."""
        super().__exit__(*error)
        self._ray.shutdown()

    def _start(self, run):
        self._refs.append(self._task.remote(run, *self._arguments))
        return self._refs[-1].future()

    def _stop(self, number):
        for ref in self._refs:
            self._ray.cancel(ref, force=number == signal.SIGKILL)


def execute(run, root, environment, wanted_signal=lambda: None, cwd=None):
    """Executes the commands of a run, and returns its `Outcome`."""
    start, failure = time.monotonic(), ""
    # Files in a bucket cannot be appended to.
    remote = "://" in run.folder
    path = pathlib.Path(tempfile.mkdtemp() if remote else run.folder, LOG)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as log:
        log.write(time.strftime("--- %Y-%m-%d %H:%M:%S%z\n").encode())
        log.flush()
        first = log.tell()
        options = {"stdout": log, "env": environment, "cwd": cwd}
        for script, *arguments in run.commands:
            command = [sys.executable, os.path.join(root, script), *arguments]
            failure = failure or _run_process(command, wanted_signal, **options)
        seconds = time.monotonic() - start
        log.seek(first)
        lines = log.read().decode(errors="replace").strip().split("\n")
        log.write(f"--- {failure or 'done'} after {seconds:.1f} s\n".encode())
    if remote:
        from caltrain_tf import files

        there = files.as_path(run.folder) / LOG
        before = there.read_bytes() if there.exists() else b""
        files.write_bytes(there, before + path.read_bytes())
    return Outcome(failure, lines[-1].strip(), seconds)


def gpus_of_slots(parallel):
    """Returns the CUDA_VISIBLE_DEVICES of each slot; None without GPUs."""
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    if not count:
        return [None] * parallel
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else list(map(str, range(count)))
    slots = [gpus[slot % count : count : parallel] for slot in range(parallel)]
    return list(map(",".join, slots))


def _run_process(command, wanted_signal, **options):
    """Returns how a process failed; an empty text if it succeeded."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # It does not get Ctrl-C from the terminal.
        **options,
    )
    sent = None
    try:
        while process.poll() is None:
            if wanted_signal() != sent:
                sent = wanted_signal()
                process.send_signal(sent)
            time.sleep(0.1)
    except KeyboardInterrupt:
        # Raised by `ray.cancel`; the process may take time to save.
        process.terminate()
        process.wait()
        raise
    finally:
        process.stdin.close()
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    return f"exit code {process.returncode}" if process.returncode else ""


def stop_with_input():
    """Has this process, a run, stop when the pool closes its input or ends."""

    def wait():
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _environment(root, threads, gpus):
    """Returns the environment of a process, with the user's variables."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    paths = filter(None, [str(root), os.environ.get("PYTHONPATH")])
    return {
        **dict.fromkeys((*names, "OMP_NUM_THREADS"), str(threads)),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "CALTRAIN_STOPS_WITH_INPUT": "1",
        **({} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}),
    }


def _ray_task(run, threads, gpus, cwd):
    """Executes a run on a node of the cluster, which has the repository."""
    root = os.getcwd()
    environment = _environment(root, threads, gpus)
    cwd = cwd if os.path.isdir(cwd) else None
    return execute(run, root, environment, cwd=cwd)


def _connect_ray(root, address):
    """Returns the package `ray`, connected to a cluster."""
    # Ray reads these when it is imported. No usage statistics are sent.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            '--ray needs the package ray: pip install "caltrain_tf[ray]"'
        ) from error
    others = set(os.listdir(root)) - {"baselines", "caltrain_tf", "configs"}
    excludes = [f"/{name}" for name in others]
    try:
        host, _, port = address.removeprefix("ray://").partition(":")
        if port:
            # Ray would keep trying for minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(
            address=address,
            runtime_env={"working_dir": str(root), "excludes": excludes},
            log_to_driver=False,
            logging_level="ERROR",
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            "--ray must be `auto` (after `ray start --head`), `local`, or the "
            f"address of a cluster. Received: --ray={address}, where {error}"
        ) from error
    # Pickled by value, so that a node need not import TensorFlow.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return ray
