"""Every argument of every loss, with values of kinds that it cannot be."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import caltrain_tf as ct
from tests.losses.cases import NAMES, OF_LOGITS, get

INF, NAN = float("inf"), float("nan")
OUT_OF_RANGE = [
    ("nll", "label_smoothing", [-0.1, 1.0]),
    ("focal", "gamma", [-1, INF, "flsd", None]),
    ("sb_ece", "num_bins", [0, -3, 2.5, None, 10**400]),
    ("sb_ece", "temperature", [0, -0.1, INF, 10**400]),
    ("sb_ece", "norm", [0.5, 0, -1, INF]),
    ("sb_ece", "binning", ["bins", None, 3]),
    ("sb_ece", "lower", [-0.1, 1.0, "change"]),
    ("s_avuc", "threshold", [0, 1, -0.5, 1.5]),
    ("s_avuc", "temperature", [0, -1]),
    ("avuc", "threshold", [0, -0.1, INF]),
    ("avuc_gs", "threshold", [0]),
    ("mmce", "width", [0, -0.4, 0.001]),
    ("dual_focal", "gamma", [-1, INF, "flsd53", None]),
    ("bsce_gra", "gamma", [-1, INF]),
    ("bsce_gra", "norm", [0.5, 0, -1, INF]),
    ("mbls", "margin", [-1, INF]),
    ("mbls", "from_logits", [False]),
    ("acls", "margin", [-1]),
    ("acls", "positive", [-0.1, INF]),
    ("acls", "negative", [-0.1]),
    ("acls", "from_logits", [False]),
    ("sb_marginal_ece", "num_bins", [0]),
    ("sb_marginal_ece", "temperature", [-1]),
    ("sb_marginal_ece", "norm", [0.9]),
    ("sb_marginal_ece", "binning", ["labels"]),
]
# No option is of any of these kinds, and no tensor can be made of them.
WRONG_KINDS = [
    {},
    {"a": 1.0},
    object(),
    print,
    1j,
    "text",
    b"bytes",
    np.array([1j, 2j]),
    np.array(["a", "b"]),
    np.array([1.0, None]),
    [[1.0], [2.0, 3.0]],
]
WRONG_OPTIONS = [*WRONG_KINDS, [], (), NAN, np.array([1.0, 2.0]), np.nan]
LABELS, PROBS = [0, 1], np.full((2, 2), 0.5)
LOGITS = np.array([[2.0, -1.0], [0.0, 3.0]])


@st.composite
def wrong_calls(draw):
    """A loss, one of its arguments, and a value of a kind that it is not."""
    name = draw(st.sampled_from(NAMES))
    parameters = inspect.signature(get(name).function).parameters
    argument = draw(st.sampled_from(sorted(parameters)))
    is_tensor = argument in ("y_true", "y_pred", "sample_weight")
    values = WRONG_KINDS if is_tensor else WRONG_OPTIONS
    return name, argument, draw(st.sampled_from(values))


def check_refused(name, argument, value):
    function = get(name).function
    arguments = {"y_true": LABELS, "y_pred": PROBS}
    if name in OF_LOGITS:
        arguments = {"y_true": LABELS, "y_pred": LOGITS, "from_logits": True}
    arguments[argument] = value
    with pytest.raises(ValueError, match=f"`{argument}`.*Received"):
        function(**arguments)
    constructor = inspect.signature(type(get(name))).parameters
    if argument in constructor:
        with pytest.raises(ValueError, match=f"`{argument}`.*Received"):
            get(name, **{argument: value})
    elif argument != "cross_replica":
        arguments.pop("from_logits", None)
        with pytest.raises(ValueError, match=f"`{argument}`.*Received"):
            get(name)(**arguments)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(wrong_calls())
def test_an_argument_of_a_wrong_kind_is_named(call):
    check_refused(*call)


@pytest.mark.parametrize(("name", "option", "values"), OUT_OF_RANGE)
def test_an_option_out_of_range_is_named(name, option, values):
    for value in values:
        check_refused(name, option, value)


@pytest.mark.parametrize("weight", [[-1, 1], [NAN, 1], [INF, 1]])
def test_weights_are_finite_and_not_negative(weight):
    with pytest.raises(
        ValueError, match=r"`sample_weight`.*sample_weight\[0\]"
    ):
        ct.losses.sb_ece(LABELS, PROBS, sample_weight=weight)

    def loss(weight):
        return ct.losses.dca(LABELS, PROBS, sample_weight=weight)

    weight = tf.constant(weight, "float32")
    with pytest.raises(tf.errors.InvalidArgumentError, match="sample_weight"):
        tf.function(loss)(weight)
    assert np.isnan(tf.function(loss, jit_compile=True)(weight))


@pytest.mark.parametrize(
    ("labels", "predictions", "argument", "options"),
    [
        ((4,), (4,), "y_pred", {}),
        ((4,), (4, 2, 3), "y_true", {}),
        ((4, 5), (4, 3), "y_true", {}),
        ((4, 3, 1), (4, 3), "y_true", {}),
        ((), (4, 3), "y_true", {}),
        ((5,), (4, 3), "y_true", {}),
        ((4, 2), (4, 1), "y_true", {}),
        ((4,), (4, 3), "y_true", {"multi_label": True}),
        ((4, 3), (4, 3), "ignore_class", {"ignore_class": 1}),
        ((4,), (4, 0), "y_pred", {}),
    ],
)
def test_wrong_shapes_are_named(labels, predictions, argument, options):
    loss = ct.losses.SBECE(from_logits=True, **options)
    with pytest.raises(ValueError, match=f"`{argument}`.*Received"):
        loss(np.zeros(labels), np.zeros(predictions, "float32"))


@pytest.mark.parametrize("shape", [(2, 2), (3,), (2, 1, 1)])
def test_weights_of_another_shape(shape):
    with pytest.raises(ValueError, match="`sample_weight`.*Received"):
        ct.losses.sb_ece(LABELS, PROBS, sample_weight=np.ones(shape))
