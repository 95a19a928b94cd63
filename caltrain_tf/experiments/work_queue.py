"""Jobs that the workers of a study share out."""

import dataclasses
import math
import time
import traceback

from caltrain_tf.experiments.liveness import WORKER
from caltrain_tf.experiments.liveness import Heartbeat
from caltrain_tf.experiments.liveness import Watch
from caltrain_tf.experiments.storage import import_optuna

JOB = "job"
RESULT = "result"
REASON = "reason"
# What Optuna 4 and 5 raise where a trial is finished already.
_FINISHED = (ValueError, RuntimeError)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        params: Its parameters.
        result: What the work returned, or None where it failed.
        reason: Why it failed, or None.
        seconds: How long it took.
    """

    params: dict
    result: dict | None
    reason: str | None
    seconds: float


class JobFailedError(Exception):
    """Raised by work whose failure the user has been told of already."""


class WorkQueue:
    """The jobs of an Optuna study, each done once by one of its workers.

    A job is a name with parameters; its trials carry the name. Workers that
    are given the same jobs take them in turn. A job whose worker was killed, or
    interrupted, is taken again; one that raised an exception is not, and the
    exception is its outcome.

    All state is in the study: of a job's trials, a COMPLETE one is its result,
    a FAIL with a reason its failure, and a FAIL without one is as if it had
    never been.

    Args:
        study: An Optuna study.
        storage: What `open_storage` returned; the study's.
        values: The names of those entries of a result that are the study's
            objectives, in their order.
        distributions: Optuna distributions of the parameters, by name.
        retry_failed: Whether to forget the failures so far.
        beat_seconds: How often a worker says that it is there.
        gone_seconds: How long after its last word it is taken for gone.
        poll_seconds: How often to look, where others have all the work.
        say: Called with lines for the user.
    """

    def __init__(
        self,
        study,
        storage,
        values,
        distributions=None,
        *,
        retry_failed=False,
        beat_seconds=10.0,
        gone_seconds=60.0,
        poll_seconds=1.0,
        say=print,
    ):
        """See the class."""
        self._optuna = import_optuna()
        self._states = self._optuna.trial.TrialState
        self._study = study
        self._storage = storage
        self._values = values
        self._distributions = distributions or {}
        self._beat_seconds = beat_seconds
        self._poll_seconds = poll_seconds
        self._watch = Watch(gone_seconds)
        self._say = say
        self._forgotten = frozenset()
        if retry_failed:
            self._forgotten = frozenset(
                trial.number for trial in self._trials() if _has_failed(trial)
            )

    def jobs(self):
        """Returns the parameters of every job that was ever added, by name."""
        return {trial.user_attrs[JOB]: trial.params for trial in self._trials()}

    def add(self, name, params):
        """Adds a job, for any worker to take.

        Args:
            name: Its name.
            params: Its parameters, numbers by name.
        """
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=self._states.WAITING,
                params=params,
                distributions={key: self._distributions[key] for key in params},
                user_attrs={JOB: name},
            )
        )

    def outcomes(self):
        """Returns the outcomes of the jobs that are done, by name."""
        return {
            name: _outcome(trial)
            for name, trial in self._current().items()
            if trial.state == self._states.COMPLETE or _has_failed(trial)
        }

    def running(self):
        """Returns the names of the workers, by the jobs they work on."""
        return {
            name: trial.user_attrs.get(WORKER, "?")
            for name, trial in self._current().items()
            if trial.state == self._states.RUNNING
        }

    def run(self, jobs, work):
        """Does jobs until all are done, by this worker or by others.

        Args:
            jobs: Parameters by name.
            work: Called with a name and its parameters; returns a dictionary of
                JSON types, the result. The study's objectives in it must be
                finite.

        Returns:
            An `Outcome` for each job.
        """
        said = None
        while True:
            while self.work_once(jobs, work):
                said = None
            done = self.outcomes()
            left = [name for name in jobs if name not in done]
            if not left:
                return {name: done[name] for name in jobs}
            waiting = ", ".join(
                f"{name} ({worker})"
                for name, worker in self.running().items()
                if name in left
            )
            if waiting and waiting != said:
                self._say(f"waiting for other workers: {waiting}")
                said = waiting
            time.sleep(self._poll_seconds)

    def work_once(self, jobs, work):
        """Takes one of the jobs and does it.

        Args:
            jobs: See `run`.
            work: See `run`.

        Returns:
            Whether there was one to take.
        """
        self._free_those_of_gone_workers()
        current = self._current()
        for name in jobs:
            if name not in current:
                self.add(name, jobs[name])
        # Read again: another worker may have added the same job before us.
        current = self._current()
        for name, params in jobs.items():
            trial = current.get(name)
            if trial is None or trial.state != self._states.WAITING:
                continue
            if self._take(trial):
                self._do(trial, name, params, work)
                return True
        return False

    def _trials(self):
        trials = self._study.get_trials(deepcopy=False)
        return [trial for trial in trials if JOB in trial.user_attrs]

    def _current(self):
        """The trial that says how a job stands, by the job's name."""
        order = {
            self._states.COMPLETE: 0,
            self._states.RUNNING: 1,
            self._states.FAIL: 2,
            self._states.WAITING: 3,
        }
        # Two workers may have added a job at once: the first trial counts.
        current = {}
        for trial in self._trials():
            if trial.number in self._forgotten or trial.state not in order:
                continue
            if trial.state == self._states.FAIL and not _has_failed(trial):
                continue
            name = trial.user_attrs[JOB]
            best = current.get(name)
            if best is None or order[trial.state] < order[best.state]:
                current[name] = trial
        return current

    def _take(self, trial):
        try:
            return self._storage.set_trial_state_values(
                trial._trial_id, state=self._states.RUNNING
            )
        except _FINISHED:
            # Done by another worker.
            return False

    def _do(self, frozen, name, params, work):
        trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
        fail = self._states.FAIL
        try:
            with Heartbeat(trial, self._beat_seconds):
                result = work(name, params)
            values = [float(result[key]) for key in self._values]
            if not all(map(math.isfinite, values)):
                parts = ", ".join(f"{key}={result[key]}" for key in result)
                raise ArithmeticError(f"The result is not finite: {parts}")
        except JobFailedError as error:
            self._tell(trial, {REASON: str(error)[:1000]}, state=fail)
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            self._say(f"failed: {name}: {reason}")
            self._tell(trial, {REASON: reason[:1000]}, state=fail)
        except BaseException:
            # We are being stopped; others can go on with it at once.
            self._tell(trial, {}, state=fail)
            raise
        else:
            self._tell(trial, {RESULT: result}, values=values)

    def _tell(self, trial, attributes, **outcome):
        try:
            for key, value in attributes.items():
                trial.set_user_attr(key, value)
            self._study.tell(trial, **outcome)
        except _FINISHED as error:
            self._say(
                f"trial {trial.number} is not this worker's any more; another "
                f"one took it for gone: {error}"
            )

    def _free_those_of_gone_workers(self):
        for trial in self._trials():
            if trial.state != self._states.RUNNING:
                continue
            if self._watch.is_gone(trial):
                worker = trial.user_attrs.get(WORKER, "?")
                name = trial.user_attrs[JOB]
                try:
                    self._study.tell(trial.number, state=self._states.FAIL)
                except _FINISHED:
                    # Done, or freed by another worker.
                    continue
                self._say(f"the worker {worker} is gone; taking {name} again")


def _has_failed(trial):
    return trial.state.name == "FAIL" and REASON in trial.user_attrs


def _outcome(trial):
    seconds = (trial.datetime_complete - trial.datetime_start).total_seconds()
    return Outcome(
        trial.params,
        trial.user_attrs.get(RESULT),
        trial.user_attrs.get(REASON),
        seconds,
    )
