"""What users hand over as predictions and labels, checked and made uniform.

Every error names the argument and the first row that is wrong. The checks of
values look at a block of rows at a time, so that a metric can make them in the
same pass in which it reads the block anyway.
"""

import numpy as np

from caltrain_tf.checks import ROUNDING
from caltrain_tf.checks import SUM_TOLERANCE
from caltrain_tf.checks import as_array
from caltrain_tf.checks import check_flag
from caltrain_tf.metrics.blocks import map_blocks


def check_predictions(predictions, labels, from_logits=False, name="probs"):
    """Checks predictions and labels and returns them as arrays.

    Args:
        predictions: Probabilities, or logits, `(N, K)`: an array, a tensor, or
            anything else with `__array__`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `predictions` holds logits.
        name: How errors call `predictions`.

    Returns:
        Predictions `(N, K)`, float32 or float64, not copied if they are that
        already; and class ids `(N,)`, int64.

    Example:
        >>> probs, ids = check_predictions([[0.9, 0.1]], [[0, 1]])
        >>> ids.tolist()
        [1]
        >>> check_predictions([[0.9, 0.1], [0.9, 0.2]], [0, 1])
        Traceback (most recent call last):
        ...
        ValueError: `probs` must hold ... Received: probs[1] summing to 1.1
    """
    check_flag("from_logits", from_logits)
    predictions = as_predictions(predictions, name)
    labels = as_labels(labels, *predictions.shape)
    check_values(predictions, from_logits, name)
    return predictions, labels


def as_predictions(predictions, name="probs"):
    """`predictions` as a float array `(N, K)`; values are not looked at."""
    predictions = as_array(name, predictions)
    if predictions.ndim != 2 or predictions.shape[1] < 2:
        raise ValueError(
            f"`{name}` must have the shape (examples, classes) with at least "
            f"2 classes. Received: {name}.shape={predictions.shape}"
        )
    if predictions.shape[0] == 0:
        raise ValueError(
            f"`{name}` must have at least one row. "
            f"Received: {name}.shape={predictions.shape}"
        )
    if predictions.dtype in (np.float32, np.float64):
        return predictions
    # Half precision is what accelerators return, and integers are exact ones
    # and zeros.
    return predictions.astype(np.float32)


def as_labels(labels, num_rows, num_classes, name="labels"):
    """`labels` as checked class ids `(N,)`, int64."""
    labels = as_array(name, labels)
    if labels.shape == (num_rows, 1):
        labels = labels[:, 0]
    if labels.shape not in ((num_rows,), (num_rows, num_classes)):
        raise ValueError(
            f"`{name}` must hold class ids ({num_rows},) or one-hot rows "
            f"({num_rows}, {num_classes}), as many as there are predictions. "
            f"Received: {name}.shape={labels.shape}"
        )
    if labels.ndim == 2:
        return _ids_of_one_hot(labels, name)
    invalid = ~((labels >= 0) & (labels < num_classes))
    if labels.dtype.kind == "f":
        invalid |= labels != np.floor(labels)
    if invalid.any():
        row = int(np.argmax(invalid))
        raise ValueError(
            f"`{name}` must hold class ids from 0 to {num_classes - 1}. "
            f"Received: {name}[{row}]={labels[row]}"
        )
    return labels.astype(np.int64, copy=False)


def check_values(predictions, from_logits=False, name="probs"):
    """Raises unless all rows are finite logits, or probabilities."""
    map_blocks(
        lambda start, stop: check_block(
            predictions[start:stop], start, from_logits, name
        ),
        len(predictions),
        predictions.itemsize * predictions.shape[1],
    )


def check_block(
    block, first_row, from_logits=False, name="probs", highest=None
):
    """Raises if a row of this block is not what it should be.

    Args:
        block: Some rows `(n, K)`.
        first_row: The index of the block's first row, for the error.
        from_logits: Whether these are logits.
        name: How errors call the predictions.
        highest: The largest value of the block, if it is known already.
    """
    # NaN goes through min, max and sum, and compares false with anything.
    low = block.min()
    high = block.max() if highest is None else highest
    if from_logits:
        if not (np.isfinite(low) and np.isfinite(high)):
            _raise_first(block, first_row, from_logits, name)
        return
    # Like sum(axis=1), and three times as fast for short rows.
    sums = np.einsum("ij->i", block)
    if not (
        low >= -ROUNDING
        and high <= 1 + ROUNDING
        and sums.min() >= 1 - SUM_TOLERANCE
        and sums.max() <= 1 + SUM_TOLERANCE
    ):
        _raise_first(block, first_row, from_logits, name)


def _raise_first(block, first_row, from_logits, name):
    """Raises for the first invalid row, if there is one after all."""
    for row, values in enumerate(block, start=first_row):
        problem = _problem_of(values.astype(np.float64), from_logits)
        if problem:
            expected, received = problem
            hint = (
                ""
                if from_logits
                else " If they are logits, pass `from_logits=True`."
            )
            raise ValueError(
                f"`{name}` must hold {expected}.{hint} "
                f"Received: {name}[{row}] {received}"
            )


def _problem_of(row, from_logits):
    """What is expected of a row and what came, or None."""
    not_finite = ~np.isfinite(row)
    if not_finite.any():
        column = int(np.argmax(not_finite))
        return "finite values", f"with {row[column]} in column {column}"
    if from_logits:
        return None
    if row.min() < -ROUNDING or row.max() > 1 + ROUNDING:
        return (
            "probabilities in [0, 1]",
            f"from {row.min():g} to {row.max():g}",
        )
    if abs(row.sum() - 1) > SUM_TOLERANCE:
        return (
            f"probabilities that sum to 1 within {SUM_TOLERANCE:g}",
            f"summing to {row.sum():g}",
        )
    return None


def _ids_of_one_hot(labels, name):
    ids = np.argmax(labels, axis=1)
    valid = np.take_along_axis(labels, ids[:, None], axis=1)[:, 0] == 1
    valid &= np.count_nonzero(labels, axis=1) == 1
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(
            f"`{name}` must hold one-hot rows, or class ids. "
            f"Received: {name}[{row}]={labels[row].tolist()}"
        )
    return ids
