"""Bad input, for every metric: the error names the argument, and the row."""

import functools
import inspect
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from caltrain_tf import metrics
from caltrain_tf.metrics import streaming
from tests.metrics.cases import EXACT

FUNCTIONS = dict(EXACT)


def accuracy_by_group(probs, labels, **options):
    groups = np.zeros(len(np.atleast_1d(labels)))
    return metrics.groupwise(metrics.accuracy, probs, labels, groups, **options)


FUNCTIONS["groupwise"] = accuracy_by_group
FUNCTIONS |= {
    f"bootstrap_{name}": functools.partial(
        metrics.bootstrap, getattr(metrics, name), num_samples=2
    )
    for name in ("calibration_error", "brier_score", "accuracy")
}
all_functions = pytest.mark.parametrize(
    "function", FUNCTIONS.values(), ids=FUNCTIONS
)
PROBS = np.full((5, 4), 0.25, "float32")
LABELS = np.array([0, 1, 2, 3, 0])


def with_row(row, values):
    probs = PROBS.copy()
    probs[row] = values
    return probs


def with_label(row, value):
    labels = LABELS.astype(float)
    labels[row] = value
    return labels


BAD = {
    "nan": (with_row(3, np.nan), LABELS, r"`probs`.*probs\[3\]"),
    "infinite": (with_row(2, [np.inf, 0, 0, 0]), LABELS, r"probs\[2\]"),
    "negative": (with_row(1, [-0.01, 1.0, 0, 0]), LABELS, r"probs\[1\]"),
    "above_one": (with_row(4, [1.01, 0, 0, 0]), LABELS, r"probs\[4\]"),
    "sum": (with_row(2, [0.28, 0.25, 0.25, 0.25]), LABELS, r"probs\[2\]"),
    "no_axis": (0.5, 1, r"probs.shape=\(1,\)|probs.shape=\(\)"),
    "binary_label": (PROBS[:, :1], LABELS, r"0 to 1.*labels\[2\]=2"),
    "binary_value": (PROBS[:, :1] * 5, LABELS % 2, r"probs\[0\] from 1.25"),
    "pixel": (with_row(3, 2)[None], LABELS[None], r"probs\[0, 3\]"),
    "pixel_label": (
        PROBS[None],
        with_label(3, 9)[None],
        r"labels\[0, 3\]=9",
    ),
    "empty": (PROBS[:0], LABELS[:0], r"probs.shape=\(0, 4\)"),
    "label_too_large": (PROBS, with_label(3, 4), r"`labels`.*labels\[3\]=4"),
    "label_negative": (PROBS, with_label(1, -1), r"labels\[1\]=-1"),
    "label_fraction": (PROBS, with_label(2, 0.5), r"labels\[2\]=0.5"),
    "label_count": (PROBS, LABELS[:3], r"labels.shape=\(3,\)"),
    "one_hot_classes": (PROBS, np.eye(3)[[0, 1, 2, 0, 0]], r"labels.shape"),
    "not_one_hot": (PROBS, np.ones((5, 4)), r"labels\[0\]"),
}


def test_exact_and_streaming_metrics_have_one_rule_for_probabilities():
    # Within 1e-6 of [0, 1] each, and 0.02 of 1 in sum.
    for row, is_valid in (
        ([0.5, 0.515], True),
        ([1.0, -5e-7], True),
        ([0.5, 0.525], False),
        ([1.01, -0.01], False),
        ([1.005, 0.0], False),
    ):
        for call in (
            lambda row: metrics.brier_score([row], [0]),
            lambda row: metrics.BrierScore().update_state([0], [row]),
        ):
            if is_valid:
                call(row)
            else:
                with pytest.raises(ValueError, match="If they are logits"):
                    call(row)


@all_functions
def test_raises_and_names_the_row(function):
    for probs, labels, message in BAD.values():
        with pytest.raises(ValueError, match=message):
            function(probs, labels)
    for value in (np.nan, np.inf, -np.inf):
        logits = np.zeros((5, 4), "float32")
        logits[3, 1] = value
        with pytest.raises(
            ValueError, match=r"`probs` must hold finite.*probs\[3\]"
        ):
            function(logits, LABELS, from_logits=True)


@all_functions
def test_bad_weights_are_named(function):
    for weight, message in (
        ([1, 1, -1, 1, 1], r"`sample_weight`.*sample_weight\[2\]=-1"),
        ([1, 1, 1, np.nan, 1], r"`sample_weight`.*sample_weight\[3\]=nan"),
        ([1, 1, np.inf, 1, 1], r"sample_weight\[2\]=inf"),
        ([0] * 5, "must leave an example that counts.*none"),
        (np.ones(4), r"sample_weight.shape=\(4,\)"),
        (np.ones((5, 2)), r"sample_weight.shape=\(5, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            function(PROBS, LABELS, sample_weight=weight)
    with pytest.raises(ValueError, match="must leave an example that counts"):
        function(PROBS[:1], LABELS[:1], ignore_class=0)
    with pytest.raises(ValueError, match="must hold class ids.*ignore_class"):
        function(PROBS, np.eye(4)[LABELS], ignore_class=0)


@all_functions
def test_probabilities_called_logits_are_said_aloud(function):
    with pytest.warns(UserWarning, match="`probs` looks like prob") as caught:
        function(PROBS, LABELS, from_logits=True)
    assert caught[0].filename == __file__


@all_functions
def test_any_finite_logits_have_a_finite_value(function):
    logits = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    for scale in (1e-3, 1e3, 1e38):
        value = function(logits * np.float32(scale), LABELS, from_logits=True)
        # No coverage has a risk as small as that: NaN.
        if isinstance(value, float) and function != metrics.coverage_at_risk:
            assert np.isfinite(value)


# What no argument of a kind may be. Anything that hypothesis finds in there
# must end in an error that names the argument.
NO_ARRAY = st.one_of(
    st.text(),
    st.binary(min_size=1),
    st.dictionaries(st.text(), st.integers(), max_size=2),
    st.complex_numbers(allow_nan=False),
    st.lists(st.complex_numbers(allow_nan=False), min_size=5, max_size=5),
    st.lists(st.text(), min_size=5, max_size=5),
    st.sets(st.integers(), min_size=1, max_size=2),
    st.just([[1.0], [2.0, 3.0]]),
    st.builds(object),
    st.just(math),
)
NO_NUMBER = st.one_of(
    NO_ARRAY,
    st.none(),
    st.booleans(),
    st.sampled_from([math.nan, -1, -0.5, np.float32(-2), [], [1], np.ones(2)]),
)
NO_FLAG = st.one_of(
    NO_ARRAY, st.none(), st.integers(), st.floats(), st.just([])
)
JUNK = {
    **dict.fromkeys(["probs", "labels", "y_true", "y_pred"], NO_ARRAY),
    "labels": NO_ARRAY | st.none(),
    "sample_weight": NO_ARRAY,
    **dict.fromkeys(["from_logits", "multi_label"], NO_FLAG),
    **dict.fromkeys(["debias", "positive", "root"], NO_FLAG),
    **dict.fromkeys(["num_bins", "num_samples", "seed"], NO_NUMBER),
    **dict.fromkeys(["norm", "level", "temperature", "width"], NO_NUMBER),
    # None is what they are if nothing is said.
    "num_classes": NO_NUMBER.filter(lambda value: value is not None),
    "threshold": NO_NUMBER.filter(lambda value: value is not None),
    **dict.fromkeys(["binning", "estimator", "reduce"], NO_NUMBER),
    "metric": NO_NUMBER,
    "risk": NO_NUMBER,
    "groups": st.one_of(
        st.text(),
        st.binary(),
        st.dictionaries(st.text(), st.integers(), max_size=2),
        st.complex_numbers(),
        st.sets(st.integers(), max_size=2),
        st.lists(st.lists(st.integers(), max_size=2), max_size=6),
        st.sampled_from(
            [None, math, object(), 0.5, np.ones(4), [math.nan] * 5]
        ),
        st.just([[0], [1], [2], [3], (4,)]),
    ),
    "ignore_class": NO_ARRAY,
}


def call_of(kind):
    """A function of keywords with a valid default for each argument."""

    def update(y_true=LABELS, y_pred=PROBS, sample_weight=None, **options):
        kind(**options).update_state(y_true, y_pred, sample_weight)

    def exact(probs=PROBS, labels=LABELS, **options):
        if kind is metrics.bootstrap:
            options = {"metric": metrics.accuracy, "num_samples": 1} | options
        if kind is metrics.groupwise:
            options = {"metric": metrics.accuracy, "groups": LABELS} | options
        kind(probs=probs, labels=labels, **options)

    return update if inspect.isclass(kind) else exact


def arguments():
    kinds = [streaming.__dict__.get(name) for name in metrics.__all__]
    kinds = [kind for kind in kinds if kind is not None]
    kinds += [*EXACT.values(), metrics.bootstrap, metrics.groupwise]
    for kind in kinds:
        parameters = list(inspect.signature(kind).parameters)
        if inspect.isclass(kind):
            parameters += ["y_true", "y_pred", "sample_weight"]
        for parameter in parameters:
            # Keras looks after names and types itself.
            if parameter not in ("name", "dtype", "options"):
                yield kind, parameter


@hypothesis.given(st.data())
@hypothesis.settings(deadline=None, max_examples=200, derandomize=True)
def test_wrong_kinds_are_named(data):
    kind, parameter = data.draw(st.sampled_from(list(arguments())))
    value = data.draw(JUNK[parameter])
    hypothesis.assume(
        value is not None or kind is not metrics.average_uncertainty
    )
    with pytest.raises((ValueError, TypeError)) as caught:
        call_of(kind)(**{parameter: value})
    assert f"`{parameter}`" in str(caught.value)


@pytest.mark.parametrize("label", [-1, 7, np.nan])
def test_labels_of_weight_0_may_be_anything(label):
    probs = [[0.9, 0.1], [0.2, 0.8], [np.nan, np.nan]]
    weights = [1, 1, 0]
    value = metrics.brier_score(probs, [0, 1, label], sample_weight=weights)
    assert value == metrics.brier_score(probs[:2], [0, 1])
    rows = [[1, 0], [0, 1], [label, label]]
    assert value == metrics.brier_score(probs, rows, sample_weight=weights)
