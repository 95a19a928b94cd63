"""What came of a study."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that failed.

    Attributes:
        name: What the run is called.
        reason: How its process ended.
        last_line: The last line of its log.
        log_path: Where the whole log is.
    """

    name: str
    reason: str
    last_line: str
    log_path: str


@dataclasses.dataclass
class Outcome:
    """What came of a study.

    Attributes:
        failures: Of the runs that failed.
        stopped_by: The number of the signal that stopped it, or None.
    """

    failures: list = dataclasses.field(default_factory=list)
    stopped_by: int | None = None
