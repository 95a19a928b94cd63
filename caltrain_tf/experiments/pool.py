"""Pools that execute runs, each in its own process.

`submit(run)` of a pool returns a `concurrent.futures.Future` of an `Outcome`.
`LocalPool` executes runs on this machine, `RayPool` on a Ray cluster.

The process reads the run as a line of JSON on its standard input, which stays
open. If the input is closed, the parent process has ended, and the process
stops with a checkpoint, as after SIGTERM. Its output is in `log.txt` of the
run's folder. If another process holds the folder of a run, the run waits for
that process to end.
"""

import concurrent.futures
import dataclasses
import datetime
import json
import math
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

from caltrain_tf import checks

LOG = "log.txt"
_PACKAGE = str(pathlib.Path(__file__).parents[1])
_THREADS = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
)
# How many times Ray restarts a run whose node or worker died.
_RAY_RETRIES = 20
_SECONDS_BETWEEN_LOOKS = 0.1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the process of a run ended.

    Attributes:
        failure: A text such as `exit code 1`; empty if the process succeeded.
        last_line: The last line of its output.
        seconds: How long it took.
    """

    failure: str
    last_line: str
    seconds: float


class LocalPool:
    """Executes runs on this machine, several at a time.

    CPU threads and GPUs are divided among the slots; if there are fewer GPUs
    than slots, slots share GPUs.

    Args:
        parallel: The number of slots, which is the number of runs at a time.
        num_gpus: Number of GPUs per slot; None to divide all GPUs.
        tpu: The TPU of the runs, which only one run can use at a time.
        command: The program of a run; for tests.

    Attributes:
        slots: The number of runs at a time.
    """

    def __init__(self, parallel=1, num_gpus=None, tpu=None, command=None):
        self.slots = checks.count("parallel", parallel)
        if tpu is not None and parallel > 1:
            raise ValueError(
                "`tpu` is used by one run at a time: `parallel` must be 1. "
                f"Received: tpu={tpu!r}, parallel={parallel}"
            )
        self._free = queue.SimpleQueue()
        threads = max(1, _num_processors() // parallel)
        for gpus in _gpus_of_slots(parallel, num_gpus):
            # Runs import the package of this process, and not another one from
            # the current folder.
            self._free.put(_environment(threads, gpus, _PACKAGE))
        self._command = command
        self._executor = concurrent.futures.ThreadPoolExecutor(parallel)
        self._processes = {}
        self._lock = threading.Lock()
        self._stopped = False

    def __enter__(self):
        """Returns the pool."""
        return self

    def __exit__(self, *error):
        """Stops the remaining runs and waits for them to end."""
        self.stop()
        self._executor.shutdown()

    def submit(self, run):
        """Returns a future of the `Outcome` of a run.

        Args:
            run: A `config.Run`.
        """
        return self._executor.submit(self._do, dataclasses.asdict(run), run)

    def running(self):
        """Returns the runs in progress."""
        return list(self._processes)

    def stop(self):
        """Stops all runs with checkpoints and cancels their futures."""
        with self._lock:
            self._stopped = True
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._send(signal.SIGTERM)

    def kill(self):
        """Kills all processes."""
        self._send(signal.SIGKILL)

    def _do(self, job, run):
        environment = self._free.get()
        try:
            with self._lock:
                if self._stopped:
                    raise concurrent.futures.CancelledError
                process = _Process(job, environment, self._command)
                self._processes[run] = process
            process.wait()
            outcome = process.end()
        finally:
            self._processes.pop(run, None)
            self._free.put(environment)
        if outcome["failure"] and self._stopped:
            raise concurrent.futures.CancelledError
        return Outcome(**outcome)

    def _send(self, number):
        for process in list(self._processes.values()):
            process.send(number)


class RayPool:
    """Executes runs on a Ray cluster, one task per run.

    A run whose node dies is restarted on another node and resumes from its last
    checkpoint, so all nodes must share the folders of the runs. The package is
    sent to the nodes; its dependencies must be installed there.

    Args:
        address: `"auto"` for the cluster of this machine, `"local"` for a new
            cluster of only this machine, or the address of a cluster.
        run_cpus: Number of CPUs per run.
        run_gpus: Number of GPUs per run; 0 for none, 0.5 for two runs per GPU.
        tpu: The TPU of the runs; only `"local"`, the TPU of the node.
        command: The program of a run; for tests.

    Attributes:
        slots: The number of runs at a time on the current nodes.
    """

    def __init__(self, address, run_cpus=1, run_gpus=0, tpu=None, command=None):
        checks.count("run_cpus", run_cpus)
        checks.number("run_gpus", run_gpus, low=0, closed=True)
        if tpu not in (None, "local"):
            raise ValueError(
                "`tpu` must be `local`, the TPU of each node, on a Ray "
                f"cluster. Received: tpu={tpu!r}"
            )
        self._ray = _start_ray(address)
        self.slots = self._count_slots(address, run_cpus, run_gpus)
        self._command = command
        self._run_cpus, self._run_gpus = run_cpus, run_gpus
        self._refs, self._logs = {}, {}

    def __enter__(self):
        """Returns the pool."""
        return self

    def __exit__(self, *error):
        """Stops the remaining runs and disconnects from the cluster."""
        refs = list(self._refs.values())
        self.stop()
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=60)
        self._ray.shutdown()

    def submit(self, run):
        """Returns a future of the `Outcome` of a run.

        Args:
            run: A `config.Run`.
        """
        job = dataclasses.asdict(run)
        if "://" not in run.folder:
            job["folder"] = os.path.abspath(run.folder)
        if not self._run_gpus:
            job["num_gpus"] = 0 if run.tpu is None else None
        task = self._ray.remote(
            num_cpus=self._run_cpus,
            num_gpus=self._run_gpus,
            max_retries=_RAY_RETRIES,
        )(_ray_task)
        self._logs[run] = _log_version(run)
        ref = task.remote(job, self._run_cpus, os.getcwd(), self._command)
        self._refs[run] = ref
        future = concurrent.futures.Future()

        def hand_over(done):
            self._refs.pop(run, None)
            try:
                future.set_result(Outcome(**done.result()))
            except self._ray.exceptions.TaskCancelledError:
                future.set_exception(concurrent.futures.CancelledError())
            except Exception as error:
                future.set_exception(error)

        ref.future().add_done_callback(hand_over)
        return future

    def running(self):
        """Returns the runs in progress, according to their logs."""
        return [
            run
            for run in list(self._refs)
            if _log_version(run) != self._logs[run]
        ]

    def stop(self):
        """Stops all runs with checkpoints and cancels their futures."""
        self._cancel(force=False)

    def kill(self):
        """Kills all workers."""
        self._cancel(force=True)

    def _cancel(self, force):
        for ref in list(self._refs.values()):
            self._ray.cancel(ref, force=force)

    def _count_slots(self, address, run_cpus, run_gpus):
        slots = gpus = 0
        for node in self._ray.nodes():
            there = node["Resources"] if node["Alive"] else {}
            shares = [there.get("CPU", 0) // run_cpus]
            if run_gpus:
                shares.append(there.get("GPU", 0) // run_gpus)
            slots += int(min(shares))
            gpus += there.get("GPU", 0)
        asked = f"{run_cpus} CPUs and {run_gpus} GPUs"
        if not slots and address == "local":
            self._ray.shutdown()
            raise ValueError(
                f"This machine does not have the {asked} of one run: "
                "`run_cpus`, `run_gpus`. "
                f"Received: run_cpus={run_cpus}, run_gpus={run_gpus}"
            )
        if not slots:
            _say(f"No node has {asked} now; the runs wait for one.")
        if gpus and not run_gpus:
            _say(f"--run_gpus=0 leaves {gpus:g} GPUs of the cluster idle.")
        return max(slots, 1)


class _Process:
    """The process of a run, in its own session, so it does not get Ctrl-C.

    It is pickled by value to the nodes of a cluster. To avoid waiting for
    TensorFlow there, it does not import the package for a local folder.
    """

    def __init__(self, job, environment, command=None, folder=None):
        self._folder = job["folder"]
        self._log_path = _start_log(self._folder)
        self._started = time.monotonic()
        command = command or (
            sys.executable,
            "-m",
            "caltrain_tf.experiments.pool",
        )
        with open(self._log_path, "ab") as log:
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
                cwd=folder,
                start_new_session=True,
            )
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has already ended; `end` returns the reason.

    def wait(self, timeout=None):
        """Waits up to `timeout` seconds; returns whether it has ended."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def send(self, number):
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def end(self):
        """Closes the log and returns the fields of the `Outcome`."""
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        code = self._process.returncode
        failure = f"exit code {code}" if code else ""
        if code < 0:
            failure = f"killed by {signal.Signals(-code).name}"
        seconds = time.monotonic() - self._started
        with open(self._log_path, "r+b") as log:
            log.seek(self._log_start)
            written = log.read().decode(errors="replace")
            lines = [line.strip() for line in written.splitlines()]
            log.write(
                f"--- {failure or 'done'} after {seconds:.1f} s\n".encode()
            )
        _end_log(self._folder, self._log_path)
        return {
            "failure": failure,
            "last_line": next(filter(None, reversed(lines)), ""),
            "seconds": seconds,
        }


def _ray_task(job, threads, folder, command):
    """Executes a run on a node of the cluster."""
    # Ray sets PYTHONPATH to the package that was sent, and selects the GPUs.
    environment = _environment(threads, "" if job["num_gpus"] == 0 else None)
    here = folder if os.path.isdir(folder) else None
    process = _Process(job, environment, command, here)
    try:
        while not process.wait(_SECONDS_BETWEEN_LOOKS):
            pass
    except KeyboardInterrupt:
        # Raised by `ray.cancel`; the process may take time to save.
        process.send(signal.SIGTERM)
        process.wait()
        process.end()
        raise
    return process.end()


def _start_ray(address):
    """Returns the package `ray`, connected to a cluster."""
    # Ray reads these when it is imported. No usage statistics are sent.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            '`ray` needs the package ray: pip install "caltrain_tf[ray]"'
        ) from error
    try:
        host, _, port = address.removeprefix("ray://").partition(":")
        if port:
            # Ray would keep trying for minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(
            address=address,
            runtime_env={"py_modules": [_PACKAGE]},
            log_to_driver=False,
            logging_level="ERROR",
            **({"include_dashboard": False} if address == "local" else {}),
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            "`ray` must be `auto` where a cluster was started on this machine "
            "(`ray start --head`), `local`, or the address of a cluster. "
            f"Received: ray={address!r}, where {error}"
        ) from error
    # Pickled by value, so that a node does not import TensorFlow only to start
    # a process.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return ray


def _say(text):
    print(text, file=sys.stderr, flush=True)


def _num_processors():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _gpus_of_slots(parallel, num_gpus):
    """Yields the CUDA_VISIBLE_DEVICES of each slot; None without GPUs."""
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    set_by_user = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpus = set_by_user.split(",") if set_by_user else map(str, range(count))
    gpus = list(gpus)[:count]
    if num_gpus is not None and num_gpus * parallel > len(gpus):
        raise ValueError(
            f"{parallel} runs at a time (`parallel`) with {num_gpus} GPUs each "
            f"(`num_gpus`) need {num_gpus * parallel} GPUs. "
            f"Received: {len(gpus)} GPUs on this machine"
        )
    each = len(gpus) // parallel if num_gpus is None else num_gpus
    for slot in range(parallel):
        if not gpus:
            yield None
        elif num_gpus is None and not each:
            yield gpus[slot % len(gpus)]
        else:
            yield ",".join(gpus[slot * each : (slot + 1) * each])


def _environment(threads, gpus, package=None):
    """Returns the environment of a process, with the user's variables."""
    environment = {
        **dict.fromkeys(_THREADS, str(threads)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if package is not None:
        paths = [os.path.dirname(package), os.environ.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpus
    return environment


def _start_log(folder):
    """Returns the local log file of a process of a run."""
    if "://" in folder:
        # Files in a bucket cannot be appended to.
        handle, path = tempfile.mkstemp(suffix=f"-{LOG}")
        os.close(handle)
        return path
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, LOG)


def _end_log(folder, path):
    """Appends the log of a process to the log of a run in a bucket."""
    if "://" not in folder:
        return
    from caltrain_tf import files

    there = files.as_path(folder) / LOG
    before = there.read_bytes() if there.exists() else b""
    local = pathlib.Path(path)
    files.write_bytes(there, before + local.read_bytes())
    local.unlink()


def _log_version(run):
    try:
        return os.stat(os.path.join(run.folder, LOG)).st_mtime_ns
    except OSError:
        return None


def do(run):
    """Executes a run, including its shift benchmark if any, in this process.

    Existing results are not computed again. If another process holds the
    folder, the run waits for that process to end.

    Args:
        run: A `config.Run`.
    """
    import keras
    import ml_collections

    from caltrain_tf import training
    from caltrain_tf.experiments import shift, train

    config = ml_collections.ConfigDict(run.config)
    strategy = training.get_strategy(tpu=run.tpu, num_gpus=run.num_gpus)
    while True:
        say = threading.Timer(
            5, print, ["Waiting for the process that holds this folder."]
        )
        say.start()
        training.wait_until_free(run.folder, math.inf)
        say.cancel()
        try:
            train(config, run.folder, run.data_dir, strategy)
            if run.shift is not None:
                with training.RunFolder(run.folder, run.config):
                    shift.benchmark_run(run.folder, run.data_dir, **run.shift)
            return
        except ValueError as error:
            # Another process has taken the folder in the meantime.
            if "in use by another process" not in str(error):
                raise
        keras.backend.clear_session()


def main():
    """Executes the run that is described on standard input."""
    from caltrain_tf.experiments.config import Run

    run = Run(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    do(run)


def _stop_with_parent():
    # A thread that waits for `sys.stdin` holds a lock of the interpreter, which
    # then cannot exit.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
