"""The table that `compare` returns."""

from typing import NamedTuple

METRICS = ("nll", "brier", "ece", "accuracy")
# By which a calibrator is called better than doing nothing.
DECISIVE = ("nll", "ece")


class Score(NamedTuple):
    """A metric's value, its interval, and that of what it gained.

    `difference` is the interval of the value minus that of doing nothing, on
    the same resamples.
    """

    value: float
    interval: tuple
    difference: tuple


class Comparison:
    """What `compare` found; `str` of it is a table.

    Attributes:
        scores: Dict of calibrators, `"none"` first, to dicts of `Score` by
            `"nll"`, `"brier"`, `"ece"` and `"accuracy"`.
        better: Dict of the calibrators that are better than doing nothing to
            the metrics, of NLL and ECE, in which they are.
    """

    def __init__(self, scores):
        """Takes the scores."""
        self.scores = scores
        self.better = {}
        for name, score in scores.items():
            metrics = [m for m in DECISIVE if score[m].difference[1] < 0]
            if metrics:
                self.better[name] = metrics

    def __str__(self):
        """The table and what follows from it."""
        lines = [["calibrator", *METRICS]]
        for name, score in self.scores.items():
            cells = [_format(m, score[m]) for m in METRICS]
            lines.append([name, *cells])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join(line.rstrip() for line in [*table, self.verdict()])

    def verdict(self):
        """One sentence: what is better than doing nothing."""
        if not self.better:
            return (
                "None is better than doing nothing: no calibrator lowers NLL "
                "or ECE by more than chance would."
            )
        names = "; ".join(
            f"{k} ({', '.join(v)})" for k, v in self.better.items()
        )
        return f"Better than doing nothing (*): {names}."


def _format(metric, score):
    low, high = score.interval
    is_better = metric in DECISIVE and score.difference[1] < 0
    mark = "*" if is_better else ""
    return f"{score.value:.4f}{mark} [{max(low, 0.0):.4f}, {high:.4f}]"
