"""What became of a job, as its trial in the study says."""

import dataclasses

# What the trials of jobs carry.
JOB = "job"
RESULT = "result"
REASON = "reason"


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


def has_failed(trial):
    """Whether a trial's work raised an exception."""
    return trial.state.name == "FAIL" and REASON in trial.user_attrs


def outcome_of(trial):
    """Returns the `Outcome` of a finished trial."""
    seconds = (trial.datetime_complete - trial.datetime_start).total_seconds()
    return Outcome(
        trial.params,
        trial.user_attrs.get(RESULT),
        trial.user_attrs.get(REASON),
        seconds,
    )
