"""The paper's rule for the best of several networks."""

import math

from caltrain_tf.checks import check_number

# Accuracies are shares of a split, at least 1e-6 apart in any that we know;
# what 0.91 - 0.9 is off by is far below.
_ROUNDING = 1e-9


def within_accuracy(
    rows, accuracy="accuracy", tolerance=0.01, *, reference=None
):
    """Says which rows give up less accuracy than is tolerated.

    Strictly less: with the paper's 1%, a row of 94% is not within a best of
    95%, and one of 94.01% is. A row whose accuracy is not a finite number is
    not, and counts for nothing.

    Args:
        rows: Dictionaries, or others with `row[accuracy]`.
        accuracy: The key of the accuracy, between 0 and 1.
        tolerance: What may be given up, a share: 0.01 is one percentage point.
        reference: The accuracy against which it is given up; the highest of
            `rows` if None.

    Returns:
        A list of a bool for each row.

    Example:
        >>> rows = [{"accuracy": 0.95}, {"accuracy": 0.94}, {"accuracy": 0.945}]
        >>> within_accuracy(rows)
        [True, False, True]
    """
    check_number("tolerance", tolerance, low=0.0)
    values = [float(row[accuracy]) for row in rows]
    if reference is None:
        reference = max(filter(math.isfinite, values), default=0.0)
    return [
        math.isfinite(value) and reference - value < tolerance - _ROUNDING
        for value in values
    ]


def best_within_accuracy(
    rows, accuracy="accuracy", error="ece", tolerance=0.01, *, reference=None
):
    """Returns the row of the lowest error that gives up little accuracy.

    "We choose the lowest ECE whilst giving up less than 1% accuracy relative to
    the configuration with the highest accuracy." Of equal errors, the more
    accurate row is the better one, then the earlier. Rows whose error or
    accuracy is not a finite number are left out altogether.

    Args:
        rows: See `within_accuracy`.
        accuracy: The key of the accuracy.
        error: The key of the error, such as the ECE.
        tolerance: See `within_accuracy`.
        reference: See `within_accuracy`.

    Returns:
        One of `rows`.

    Example:
        >>> rows = [
        ...     {"beta": 0.1, "accuracy": 0.952, "ece": 0.031},
        ...     {"beta": 1.0, "accuracy": 0.947, "ece": 0.012},
        ...     {"beta": 10.0, "accuracy": 0.921, "ece": 0.008},
        ... ]
        >>> best_within_accuracy(rows)["beta"]
        1.0

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, the appendix on hyperparameters.
    """
    finite = [row for row in rows if math.isfinite(row[error])]
    within = within_accuracy(finite, accuracy, tolerance, reference=reference)
    candidates = [row for row, good in zip(finite, within, strict=True) if good]
    if not candidates:
        raise ValueError(
            "`rows` must hold a row with a finite error and an accuracy within "
            f"`tolerance`. Received: {len(rows)} rows, {len(finite)} with a "
            f"finite {error!r}, none within {tolerance} of the best"
        )
    return min(candidates, key=lambda row: (row[error], -row[accuracy]))
