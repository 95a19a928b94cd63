"""Bad input to everything public, in one table."""

import numpy as np
import pytest

import caltrain_tf as ct
from tests.posthoc.data import calibrated

# Of the few examples of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*cross-validated NLL")

LOGITS, LABELS = calibrated(20, 3)


def with_value(value):
    logits = LOGITS.copy()
    logits[7, 1] = value
    return logits


BAD_PAIRS = {
    "empty": (LOGITS[:0], LABELS[:0], r"`logits`.*\(0, 3\)"),
    "nan": (with_value(np.nan), LABELS, r"logits\[7\].*nan"),
    "inf": (with_value(np.inf), LABELS, r"logits\[7\].*inf"),
    "minus inf": (with_value(-np.inf), LABELS, r"logits\[7\].*-inf"),
    "text": (np.full((20, 3), "a"), LABELS, "`logits`"),
    "ragged": ([[1.0], [2.0, 3.0]], LABELS, "`logits`"),
    "complex": (LOGITS * 1j, LABELS, "`logits`"),
    "object": (object(), LABELS, "`logits`"),
    "label too large": (LOGITS, LABELS * 0 + 3, r"labels\[0\]=3"),
    "negative label": (LOGITS, LABELS - 5, r"labels\[0\]=-"),
    "fractional label": (LOGITS, LABELS + 0.5, r"labels\[0\]"),
    "fewer labels": (LOGITS, LABELS[:-1], r"`labels`.*\(19,\)"),
    "no labels": (LOGITS, None, "`labels`"),
    "labels of text": (LOGITS, ["a"] * 20, "`labels`"),
}


@pytest.mark.parametrize("case", BAD_PAIRS)
def test_fit_names_the_argument_and_the_row(case):
    logits, labels, message = BAD_PAIRS[case]
    for fit in (
        *(kind().fit for kind in ct.posthoc.CALIBRATORS.values()),
        ct.posthoc.ConformalSets().fit,
        ct.posthoc.compare,
    ):
        with pytest.raises(ValueError, match=message):
            fit(logits, labels)


BAD_LOGITS = {k: BAD_PAIRS[k][::2] for k in list(BAD_PAIRS)[:8]}


@pytest.fixture(scope="module")
def fitted():
    return {
        name: kind().fit(LOGITS, LABELS)
        for name, kind in ct.posthoc.CALIBRATORS.items()
    }


@pytest.mark.parametrize("case", BAD_LOGITS)
def test_use_names_the_argument_and_the_row(fitted, case):
    logits, message = BAD_LOGITS[case]
    for calibrator in fitted.values():
        for method in ("transform", "predict_proba", "predict"):
            with pytest.raises(ValueError, match=message):
                getattr(calibrator, method)(logits)
    sets = ct.posthoc.ConformalSets().fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match=message):
        sets.predict_set(logits)


BAD_OPTIONS = [
    (ct.posthoc.TemperatureScaling, {"objective": "mse"}, "`objective`"),
    (ct.posthoc.TemperatureScaling, {"num_bins": 0}, "`num_bins`"),
    (ct.posthoc.TemperatureScaling, {"ignore_class": 0.5}, "`ignore_class`"),
    (
        ct.posthoc.TemperatureScaling,
        {"likelihood_weight": -1},
        "`likelihood_weight`",
    ),
    (ct.posthoc.VectorScaling, {"penalty": -1.0}, "`penalty`"),
    (ct.posthoc.DirichletCalibration, {"off_diagonal": -1}, "`off_diagonal`"),
    (ct.posthoc.StructuredVectorScaling, {"strength": "best"}, "`strength`"),
    (ct.posthoc.StructuredVectorScaling, {"strength": -1}, "`strength`"),
    (ct.posthoc.StructuredMatrixScaling, {"strength": None}, "`strength`"),
    (ct.posthoc.StructuredMatrixScaling, {"centred": 1}, "`centred`"),
    (ct.posthoc.ConformalSets, {"method": "lac"}, "`method`"),
    (ct.posthoc.ConformalSets, {"alpha": 0.0}, "`alpha`"),
    (ct.posthoc.ConformalSets, {"alpha": 1}, "`alpha`"),
    (ct.posthoc.ConformalSets, {"k_reg": -1}, "`k_reg`"),
    (ct.posthoc.ConformalSets, {"lam": -0.1}, "`lam`"),
    (ct.posthoc.ConformalSets, {"randomized": 1}, "`randomized`"),
    (ct.posthoc.ConformalSets, {"seed": -1}, "`seed`"),
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
        ({"calibrators": [ct.posthoc.ConformalSets()]}, "`calibrators`"),
        (
            {"calibrators": {"none": ct.posthoc.TemperatureScaling()}},
            "`calibrators`",
        ),
    ],
)
def test_options_of_compare(options, message):
    with pytest.raises(ValueError, match=message):
        ct.posthoc.compare(LOGITS, LABELS, **options)
