"""The runs that are still to be done, shared by workers on many machines."""

import hashlib
import json
import queue
import threading
import time

from caltrain_tf.experiments import run_state
from caltrain_tf.experiments.storage import import_optuna
from caltrain_tf.experiments.storage import open_storage
from caltrain_tf.experiments.work_queue import JobFailedError
from caltrain_tf.experiments.work_queue import WorkQueue

VALUES = ("ece", "accuracy")


class StorageQueue:
    """A `RunQueue` whose runs are jobs of an Optuna storage.

    Each run is taken by one of the workers that have it; that of a worker that
    was killed is taken again. A run is told by its name and its configuration.
    Failures of before are tried again.

    Args:
        settings: The `Setting`s to run.
        storage: As of `open_storage`.
        name: The name of the study in the storage.
        parallel: How many runs may be taken at a time.
        shift: What they are to be measured under, of
            `run_state.shift_options`.
        **options: Of `WorkQueue`.
    """

    def __init__(
        self, settings, storage, name, parallel=1, shift=None, **options
    ):
        """Opens the storage; nothing is taken yet."""
        optuna = import_optuna()
        storage = open_storage(storage)
        study = optuna.create_study(
            study_name=name,
            storage=storage,
            directions=["minimize", "maximize"],
            load_if_exists=True,
        )
        self._settings = {_job(run, shift): run for run in settings}
        self._work_queue = WorkQueue(
            study, storage, VALUES, retry_failed=True, **options
        )
        self._taken = queue.SimpleQueue()
        self._answers = {}
        self._failed_here = set()
        self._closed = threading.Event()
        self._error = None
        self._outcomes, self._running, self._looked = {}, {}, -float("inf")
        self._parallel = parallel
        self._threads = []

    def take(self):
        """The next run, or None where there is none to take now."""
        while len(self._threads) < self._parallel:
            thread = threading.Thread(target=self._serve, daemon=True)
            self._threads.append(thread)
            thread.start()
        try:
            return self._taken.get_nowait()
        except queue.Empty:
            return None

    def finish(self, setting, failure=""):
        """A run that was taken has ended, maybe in a failure."""
        if failure:
            self._failed_here.add(setting)
        self._answers.pop(setting).put(failure)

    def put_back(self, setting):
        """A run that was taken was stopped; others may take it."""
        self._answers.pop(setting).put(None)

    def count_left(self):
        """Returns `(waiting, running elsewhere)`."""
        self._look()
        left = [job for job in self._settings if job not in self._outcomes]
        here = [job for job in left if self._settings[job] in self._answers]
        elsewhere = [
            job for job in left if job in self._running and job not in here
        ]
        return len(left) - len(here) - len(elsewhere), len(elsewhere)

    def failed_elsewhere(self):
        """Returns pairs of a run that failed elsewhere, and why."""
        return [
            (self._settings[job], outcome.reason)
            for job, outcome in self._outcomes.items()
            if job in self._settings
            and outcome.reason is not None
            and self._settings[job] not in self._failed_here
        ]

    def close(self):
        """No more will be taken; what is taken others may take."""
        self._closed.set()
        for answers in list(self._answers.values()):
            answers.put(None)
        for thread in self._threads:
            thread.join()

    def _look(self):
        if self._error is not None:
            raise self._error
        # Many workers look at one database.
        if time.monotonic() - self._looked > 1:
            self._outcomes = self._work_queue.outcomes()
            self._running = self._work_queue.running()
            self._looked = time.monotonic()

    def _serve(self):
        """Takes runs from the storage, one at a time, in a thread."""
        try:
            while not self._closed.is_set():
                # Others may have taken us for gone: not twice at a time.
                jobs = {
                    job: {}
                    for job, setting in self._settings.items()
                    if setting not in self._answers
                }
                if not self._work_queue.work_once(jobs, self._work):
                    self._closed.wait(1)
        except _PutBack:
            pass
        except Exception as error:
            self._error = error

    def _work(self, job, params):
        """Hands a run over to `take`, and waits for `finish`."""
        del params
        setting = self._settings[job]
        self._answers[setting] = answers = queue.SimpleQueue()
        if self._closed.is_set():
            raise _PutBack
        self._taken.put(setting)
        failure = answers.get()
        if failure is None:
            raise _PutBack
        if failure:
            raise JobFailedError(failure)
        return run_state.read_results(setting.folder)


class _PutBack(BaseException):
    """No `Exception`: for the `WorkQueue` the job has not failed."""


def _job(setting, shift):
    what = json.dumps([setting.config, shift], sort_keys=True)
    digest = hashlib.sha256(what.encode()).hexdigest()[:12]
    return f"{setting.name} {digest}"
