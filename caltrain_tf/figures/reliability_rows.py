"""Reliability curves from the rows that were kept of them."""

import collections

import numpy as np

from caltrain_tf.figures import layout
from caltrain_tf.metrics.binned import ReliabilityCurve


def curves_by_objective(rows, calibrator, num_bins):
    """The reliability curve of all predictions of each objective's runs.

    In each bin, seeds weigh as much as they have predictions there.

    Args:
        rows: Reliability rows of one setting, a dictionary a bin: `objective`,
            `seed`, `calibrator`, `bin` (from 0), `confidence`, `accuracy` and
            `count`. The means of a bin with count 0 do not count.
        calibrator: Of which calibrator.
        num_bins: Number of bins, equal parts of [0, 1].

    Returns:
        From objectives to curves as of `metrics.reliability_curve`.
    """
    layout.check_rows("rows", rows)
    sums = collections.defaultdict(lambda: np.zeros((3, num_bins)))
    for row in rows:
        if row["calibrator"] != calibrator:
            continue
        index, count = row["bin"], row["count"]
        added = sums[row["objective"]]
        if count:
            _check_bin(row, num_bins)
            means = np.array([row["confidence"], row["accuracy"], 1], float)
            added[:, index] += count * means
    if not sums:
        raise ValueError(
            "`rows` must hold the calibrator. "
            f"Received: calibrator={calibrator!r}"
        )
    return {name: _curve(*added) for name, added in sums.items()}


def _curve(confidence, accuracy, count):
    nothing = np.where(count, 1, np.nan)
    divisor = np.maximum(count, 1) * nothing
    return ReliabilityCurve(
        confidence / divisor, accuracy / divisor, count.astype(np.int64)
    )


def _check_bin(row, num_bins):
    low, high = row["bin"] / num_bins, (row["bin"] + 1) / num_bins
    # Means are rounded, in files too.
    if not low - 1e-6 <= row["confidence"] <= min(high, 1) + 1e-6:
        raise ValueError(
            f"`rows` must be of {num_bins} equal bins of [0, 1], the first "
            f"with number 0. Received: bin={row['bin']}, "
            f"confidence={row['confidence']}"
        )
