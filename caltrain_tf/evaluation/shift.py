"""The shift benchmark: a network on corrupted test sets."""

import numpy as np

from caltrain_tf import metrics
from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.data.corruptions import SEVERITIES
from caltrain_tf.data.corruptions import get as get_corruption
from caltrain_tf.data.shifted_sets import GeneratedSets
from caltrain_tf.evaluation.inference import compiled
from caltrain_tf.evaluation.inference import predict
from caltrain_tf.evaluation.inference import walk
from caltrain_tf.evaluation.prediction_store import PredictionStore
from caltrain_tf.evaluation.results import fit_calibrators
from caltrain_tf.evaluation.set_progress import SetProgress
from caltrain_tf.evaluation.shift_file import COLUMNS
from caltrain_tf.evaluation.weights_digest import weights_digest

# The clean test set's corruption, and outputs as they are.
NONE = "none"
_METRICS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.negative_log_likelihood,
    "brier": metrics.brier_score,
    "ece": metrics.calibration_error,
}


def evaluate_shift(
    model,
    data,
    *,
    sets=None,
    corruptions=NAMES,
    severities=SEVERITIES,
    batch_size=256,
    num_examples=None,
    calibrators=None,
    predictions_dir=None,
    description=None,
    verbose=False,
):
    """Measures a network on its clean test split and under shift.

    One corrupted set's predictions at a time are in memory, and of images a few
    batches where they are made on the fly: those of the next set while the
    network runs on the last. Temperatures are fitted to the clean calibration
    split, never to shifted data.

    Args:
        model: A Keras model, or a function from a batch of images to logits.
            Without accelerators it runs on two batches at once.
        data: An `ImageData` (`ct.data.get`), or an `ArrayData` of your own
            images.
        sets: The corrupted sets, as of `ct.data.shifted_sets`; made on the fly
            when not given.
        corruptions: Names of corruptions.
        severities: Of 1 to 5.
        batch_size: For inference.
        num_examples: Only the first ones of each test set; all by default.
        calibrators: Fitted calibrators by name; `"ts"` and `"ts_sb_ece"` when
            not given.
        predictions_dir: A folder that keeps `calibration.npz`, `test.npz` and
            `<corruption>_<severity>.npz`. Those that are there are not computed
            again, as long as the model's weights, the sets and `description`
            are the same, and the network still gives the first clean ones.
        description: What predictions depend on beyond the arguments here; JSON
            types. To tell functions without weights apart.
        verbose: Whether to show progress.

    Returns:
        Rows, dictionaries with the keys `dataset`, `corruption`, `severity`,
        `calibrator`, `metric` and `value`. The clean test set is corruption
        `"none"`, severity 0; its metrics are `accuracy`, `nll`, `brier` and
        `ece`, the last l2 over 15 bins of equal mass.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> images = rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
        >>> labels = (images.mean((1, 2, 3)) > 127.5).astype(int)
        >>> data = ct.data.ArrayData(
        ...     "mine",
        ...     {
        ...         "calibration": (images[:20], labels[:20]),
        ...         "test": (images[20:], labels[20:]),
        ...     },
        ... )
        >>> def network(images):
        ...     bright = 20 * (tf.reduce_mean(images, [1, 2, 3]) - 0.49)
        ...     return tf.stack([-bright, bright], axis=1)
        >>> rows = ct.evaluation.evaluate_shift(
        ...     network, data, corruptions=["brightness"], severities=[1, 5]
        ... )
        >>> len(rows)  # 3 sets, 3 calibrators, 4 metrics
        36
    """
    sets = GeneratedSets(data) if sets is None else sets
    shifts = [(name, level) for name in corruptions for level in severities]
    # Before predictions of something else are removed.
    for name, level in shifts:
        get_corruption(name, level)
    count = sets.num_examples
    if num_examples is not None:
        if num_examples < 1:
            raise ValueError(
                "`num_examples` must be at least 1. "
                f"Received: num_examples={num_examples}"
            )
        count = min(count, num_examples)
    store = PredictionStore(
        predictions_dir,
        {
            "source": sets.source,
            "num_examples": count,
            "weights": weights_digest(model),
            **(description or {}),
        },
    )
    infer = compiled(model)

    def clean(split):
        batches = data.eval_batches(split, batch_size)
        return store.clean(
            split,
            lambda: predict(infer, batches),
            lambda logits, labels: (
                len(labels) == data.num_examples[split]
                and _same(predict(infer, batches.take(1)), (logits, labels))
            ),
        )

    if calibrators is None:
        calibrators = fit_calibrators(*clean("calibration"))
    logits, labels = clean("test")
    rows = _rows(
        data.name, NONE, 0, logits[:count], labels[:count], calibrators
    )
    rows_of = {}
    with SetProgress(len(shifts), verbose) as progress:

        def add(shift, logits, labels):
            rows_of[shift] = _rows(
                data.name, *shift, logits, labels, calibrators
            )
            progress.update("{} {}".format(*shift))

        missing = []
        for shift in shifts:
            there = store.shifted(*shift)
            if there is None:
                missing.append(shift)
            else:
                add(shift, *there)
        for shift, predictions in walk(infer, sets, missing, batch_size, count):
            store.keep_shifted(*shift, *predictions)
            add(shift, *predictions)
    return rows + [row for shift in shifts for row in rows_of[shift]]


def _same(first, stored):
    """Whether the first predictions are among those stored, up to rounding."""
    logits, labels = first
    expected, expected_labels = (array[: len(labels)] for array in stored)
    if logits.shape != expected.shape or (labels != expected_labels).any():
        return False
    # Processors and precisions differ by less, networks by more.
    gap = np.abs(logits - expected).mean()
    return gap <= 0.02 * max(np.std(expected), 1e-6)


def _rows(dataset, corruption, severity, logits, labels, calibrators):
    outputs = {NONE: logits}
    for name, calibrator in calibrators.items():
        outputs[name] = calibrator.transform(logits)
    return [
        dict(
            zip(
                COLUMNS,
                (dataset, corruption, severity, name, metric, value),
                strict=True,
            )
        )
        for name, scaled in outputs.items()
        for metric, function in _METRICS.items()
        for value in [float(function(scaled, labels, from_logits=True))]
    ]
