"""Does the runs of a study, several at a time."""

import os
import signal
import time

from caltrain_tf import checks
from caltrain_tf import training
from caltrain_tf.experiments import run_state
from caltrain_tf.experiments.processes import COMMAND
from caltrain_tf.experiments.processes import LOG_NAME
from caltrain_tf.experiments.processes import Child
from caltrain_tf.experiments.processes import share_environment
from caltrain_tf.experiments.run_queue import RunQueue
from caltrain_tf.experiments.stop_request import StopRequest
from caltrain_tf.experiments.study_outcome import Failure
from caltrain_tf.experiments.study_outcome import Outcome
from caltrain_tf.experiments.study_progress import StudyProgress
from caltrain_tf.training.logs import format_time

_SECONDS_BETWEEN_LOOKS = 0.2


def unfinished(settings, shift=None):
    """Returns the runs that are still to be done.

    Args:
        settings: The `Setting`s of a study.
        shift: What they are to be measured under, of
            `run_state.shift_options`.

    Returns:
        A list. A folder of another configuration, finished or not, is an error.
    """
    differing = []
    for setting in settings:
        if os.path.exists(os.path.join(setting.folder, "config.json")):
            try:
                training.check_config(setting.folder, setting.config)
            except ValueError as error:
                differing.append(str(error))
    if differing:
        raise ValueError("\n".join(differing))
    return [
        setting
        for setting in settings
        if not run_state.is_finished(setting.folder, shift)
    ]


class Study:
    """Runs in processes of their own; what is finished is not done again.

    A run that fails does not stop the others. SIGINT (Ctrl-C) and SIGTERM stop
    the processes, which write checkpoints, and the study; a second signal kills
    them. Started again, it goes on.

    Args:
        settings: The `Setting`s of the study.
        parallel: How many runs at a time.
        shift: What to measure under shift, of `run_state.shift_options`.
        data_dir: The folder of TensorFlow Datasets.
        tpu: As of `training.get_strategy`.
        num_gpus: As of `training.get_strategy`.
        make_queue: Called with the unfinished runs; makes the queue that runs
            are taken from.
        command: The program of a run; see `processes.Child`.
        stream: Where to show progress; standard error if None.
    """

    def __init__(
        self,
        settings,
        *,
        parallel=1,
        shift=None,
        data_dir=None,
        tpu=None,
        num_gpus=None,
        make_queue=RunQueue,
        command=COMMAND,
        stream=None,
    ):
        """Looks what is finished."""
        checks.check_count("parallel", parallel)
        self.parallel = parallel
        self.shift = shift
        self.command = command
        self._job = {
            "data_dir": data_dir,
            "tpu": tpu,
            "num_gpus": num_gpus,
            "shift": shift,
        }
        self._progress = StudyProgress(len(settings), stream)
        self._queue = make_queue(unfinished(settings, shift))
        self._children = {}
        self._outcome = Outcome()

    def run(self):
        """Does all runs; returns the `Outcome`."""
        try:
            with StopRequest() as stop:
                while not stop.count and self._go_on():
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                if stop.count:
                    self._outcome.stopped_by = stop.number
                    self._stop_children(stop)
        finally:
            # Whatever went wrong here, nothing is left behind.
            for child in self._children.values():
                child.stop()
            for child in self._children.values():
                child.wait()
            self._queue.close()
        for setting, reason in self._queue.failed_elsewhere():
            log_path = os.path.join(setting.folder, LOG_NAME)
            self._outcome.failures.append(
                Failure(setting.name, "on another worker", reason, log_path)
            )
        return self._outcome

    def _go_on(self):
        for setting in list(self._children):
            self._look_at(setting)
        while len(self._children) < self.parallel:
            setting = self._queue.take()
            if setting is None:
                break
            self._start(setting)
        waiting, elsewhere = self._queue.count_left()
        self._progress.show(
            self._children,
            waiting,
            elsewhere,
            len(self._outcome.failures) + len(self._queue.failed_elsewhere()),
        )
        return self._children or waiting or elsewhere

    def _start(self, setting):
        job = {
            **self._job,
            "folder": setting.folder,
            "config": setting.config,
        }
        self._progress.start(setting)
        self._children[setting] = Child(
            setting.folder, job, share_environment(self.parallel), self.command
        )

    def _look_at(self, setting):
        child = self._children[setting]
        failure = child.poll()
        if failure is None:
            return
        del self._children[setting]
        if not failure and not run_state.is_finished(
            setting.folder, self.shift
        ):
            failure = "ended without its results"
        if failure:
            last_line = child.last_line()
            self._outcome.failures.append(
                Failure(setting.name, failure, last_line, child.log_path)
            )
            failure = f"{failure}: {last_line}"
            text = f"FAILED, {failure}"
        else:
            self._progress.end(setting, child.seconds)
            results = run_state.read_results(setting.folder)
            text = (
                f"accuracy {results['accuracy']:.2%}, ECE {results['ece']:.2%}"
                f", {format_time(child.seconds)}"
            )
        self._queue.finish(setting, failure)
        self._progress.note(f"{setting.name}: {text}")

    def _stop_children(self, stop):
        self._progress.note(
            f"Stopping {len(self._children)} runs, with checkpoints. "
            "Again to kill them."
        )
        for child in self._children.values():
            child.stop()
        while self._children:
            for setting, child in list(self._children.items()):
                if stop.count > 1:
                    child.stop(signal.SIGKILL)
                failure = child.poll()
                if failure == "":
                    self._look_at(setting)
                elif failure is not None:
                    del self._children[setting]
                    self._queue.put_back(setting)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
