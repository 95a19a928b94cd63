"""Bad input to everything public, in one table."""

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
    "label too large": (LOGITS, LABELS * 0 + 3, r"labels\[0\]=3"),
    "negative label": (LOGITS, LABELS - 5, r"labels\[0\]=-"),
    "fractional label": (LOGITS, LABELS + 0.5, r"labels\[0\]"),
    "fewer labels": (LOGITS, LABELS[:-1], r"`labels`.*\(19,\)"),
    "no labels": (LOGITS, None, "`labels`"),
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


BAD_LOGITS = {k: BAD_PAIRS[k][::2] for k in list(BAD_PAIRS)[:5]}


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
    (ct.posthoc.TemperatureScaling, {"binning": "soft"}, "`binning`"),
    (ct.posthoc.TemperatureScaling, {"ignore_class": 0.5}, "`ignore_class`"),
    (
        ct.posthoc.TemperatureScaling,
        {"soft_temperature": 0.0},
        "`soft_temperature`",
    ),
    (
        ct.posthoc.TemperatureScaling,
        {"likelihood_weight": -1},
        "`likelihood_weight`",
    ),
    (ct.posthoc.VectorScaling, {"penalty": -1.0}, "`penalty`"),
    (ct.posthoc.MatrixScaling, {"cv": 1}, "`cv`"),
    (ct.posthoc.VectorScaling, {"max_iterations": 0}, "`max_iterations`"),
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


# Of no kind that any argument may have.
WRONG = st.one_of(
    st.text(),
    st.binary(),
    st.complex_numbers(),
    st.dictionaries(st.text(), st.integers()),
    st.lists(st.text(min_size=1), min_size=1, max_size=20),
    st.builds(object),
    st.just([[1.0], [2.0, 3.0]]),
    st.just(np.full((20, 3), 1j)),
    st.just(np.full((20, 3), None)),
    st.just(np.datetime64("2020-01-01")),
    st.just(lambda: 0),
)
MODEL = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])


def uses(kind, calibrator):
    """Every argument of a calibrator, as a function of its value."""
    for option in kind().get_params():
        yield option, lambda value, name=option: kind(**{name: value})
        yield (
            option,
            lambda value, name=option: kind().set_params(**{name: value}),
        )
    yield "logits", lambda value: kind().fit(value, LABELS)
    yield "labels", lambda value: kind().fit(LOGITS, value)
    yield "sample_weight", lambda value: kind().fit(LOGITS, LABELS, value)
    yield "logits", calibrator.transform
    yield "logits", calibrator.predict_proba
    yield "logits", calibrator.predict
    yield "model", calibrator.append_to
    yield "probabilities", lambda value: calibrator.append_to(MODEL, value)


def uses_of_compare():
    for option in ("cv", "num_bins", "num_samples", "seed", "calibrators"):
        yield (
            option,
            lambda value, name=option: ct.posthoc.compare(
                LOGITS, LABELS, **{name: value}
            ),
        )
    yield "logits", lambda value: ct.posthoc.compare(value, LABELS)
    yield "labels", lambda value: ct.posthoc.compare(LOGITS, value)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=WRONG)
@example(value={})
@example(value=[])
def test_wrong_kinds_are_errors_that_name_the_argument(fitted, value):
    targets = [
        (name, *use)
        for name, kind in ct.posthoc.CALIBRATORS.items()
        for use in uses(kind, fitted[name])
    ]
    targets += [("compare", *use) for use in uses_of_compare()]
    for name, argument, use in targets:
        try:
            use(value)
        except (TypeError, ValueError) as error:
            assert f"`{argument}`" in str(error), (name, argument, error)
        else:
            pytest.fail(f"{name}: `{argument}` may be {value!r}")


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
