"""Bad input to everything public, in one table."""

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.posthoc.data import calibrated

LOGITS, LABELS = calibrated(20, 3)


def with_value(value):
    logits = LOGITS.copy()
    logits[7, 1] = value
    return logits


BAD_PAIRS = {
    "one dimension": (LOGITS[:, 0], LABELS, r"`logits`.*\(20,\)"),
    "one class": (LOGITS[:, :1], LABELS, r"`logits`.*\(20, 1\)"),
    "empty": (LOGITS[:0], LABELS[:0], r"`logits`.*\(0, 3\)"),
    "nan": (with_value(np.nan), LABELS, r"logits\[7\].*nan"),
    "inf": (with_value(np.inf), LABELS, r"logits\[7\].*inf"),
    "minus inf": (with_value(-np.inf), LABELS, r"logits\[7\].*-inf"),
    "text": (np.full((20, 3), "a"), LABELS, "`logits`"),
    "label too large": (LOGITS, LABELS * 0 + 3, r"labels\[0\]=3"),
    "negative label": (LOGITS, LABELS - 5, r"labels\[0\]=-"),
    "fractional label": (LOGITS, LABELS + 0.5, r"labels\[0\]"),
    "fewer labels": (LOGITS, LABELS[:-1], r"`labels`.*\(19,\)"),
    "no labels": (LOGITS, None, "`labels`"),
}
FITS = {
    name: lambda logits, labels, cls=cls: cls().fit(logits, labels)
    for name, cls in ct.posthoc.CALIBRATORS.items()
}
FITS["sb_ece"] = lambda logits, labels: ct.posthoc.TemperatureScaling(
    "sb_ece"
).fit(logits, labels)
FITS["compare"] = ct.posthoc.compare


@pytest.mark.parametrize("case", BAD_PAIRS)
@pytest.mark.parametrize("fit", FITS)
def test_fit_names_the_argument_and_the_row(fit, case):
    logits, labels, message = BAD_PAIRS[case]
    if fit == "compare" and labels is None:
        message = "`labels`"
    with pytest.raises(ValueError, match=message):
        FITS[fit](logits, labels)


BAD_LOGITS = {k: BAD_PAIRS[k][::2] for k in list(BAD_PAIRS)[:7]}


@pytest.mark.parametrize("case", BAD_LOGITS)
@pytest.mark.parametrize("calibrator", ct.posthoc.CALIBRATORS)
@pytest.mark.parametrize("method", ["transform", "predict_proba"])
def test_use_names_the_argument_and_the_row(calibrator, method, case):
    logits, message = BAD_LOGITS[case]
    fitted = ct.posthoc.CALIBRATORS[calibrator]().fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(logits)


def dataset(*parts):
    return tf.data.Dataset.from_tensor_slices(parts).batch(8)


@pytest.mark.parametrize("calibrator", ct.posthoc.CALIBRATORS)
def test_datasets(calibrator):
    fit = ct.posthoc.CALIBRATORS[calibrator]().fit
    with pytest.raises(ValueError, match="`labels` must be left out"):
        fit(dataset(LOGITS, LABELS), LABELS)
    with pytest.raises(ValueError, match="must be a dataset of"):
        fit(dataset(LOGITS))
    with pytest.raises(ValueError, match="empty dataset"):
        fit(dataset(LOGITS, LABELS).take(0))
    with pytest.raises(ValueError, match=r"batch 0: .*labels\[0\]=9"):
        fit(dataset(LOGITS, LABELS * 0 + 9))
    with pytest.raises(ValueError, match=r"logits\[7\].*nan"):
        fit(dataset(with_value(np.nan), LABELS))


BAD_OPTIONS = [
    (ct.posthoc.TemperatureScaling, {"objective": "mse"}, "`objective`"),
    (ct.posthoc.TemperatureScaling, {"num_bins": 0}, "`num_bins`"),
    (ct.posthoc.TemperatureScaling, {"binning": "soft"}, "`binning`"),
    (
        ct.posthoc.TemperatureScaling,
        {"soft_temperature": 0.0},
        "`soft_temperature`",
    ),
    (ct.posthoc.VectorScaling, {"penalty": -1.0}, "`penalty`"),
    (ct.posthoc.MatrixScaling, {"penalty": float("nan")}, "`penalty`"),
    (ct.posthoc.MatrixScaling, {"cv": 1}, "`cv`"),
    (ct.posthoc.VectorScaling, {"max_iterations": 0}, "`max_iterations`"),
    (ct.posthoc.DirichletCalibration, {"off_diagonal": -1}, "`off_diagonal`"),
    (ct.posthoc.DirichletCalibration, {"intercept": "a"}, "`intercept`"),
]


@pytest.mark.parametrize("calibrator, options, message", BAD_OPTIONS)
def test_options_are_checked_when_constructed(calibrator, options, message):
    with pytest.raises(ValueError, match=f"{message}.*Received: "):
        calibrator(**options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"cv": 1}, "`cv`"),
        ({"cv": 21}, "`cv`.*20 rows"),
        ({"num_bins": 0}, "`num_bins`"),
        ({"num_samples": 0}, "`num_samples`"),
        ({"calibrators": ["ts"]}, "`calibrators`"),
        (
            {"calibrators": {"none": ct.posthoc.TemperatureScaling()}},
            "`calibrators`",
        ),
    ],
)
def test_options_of_compare(options, message):
    with pytest.raises(ValueError, match=message):
        ct.posthoc.compare(LOGITS, LABELS, **options)
