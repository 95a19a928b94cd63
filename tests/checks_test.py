import types
import warnings

import numpy as np
import pytest

from caltrain_tf import checks


def test_good_options_come_back_as_plain_python():
    assert checks.number("x", 0.5, low=0, high=1) == 0.5
    assert checks.number("x", 0, low=0, closed=True) == 0
    assert type(checks.number("x", np.float32(2), low=1)) is float
    assert type(checks.count("n", np.int64(3))) is int
    assert checks.count("n", 0, low=0) == 0
    assert type(checks.choice("c", np.str_("b"), ("a", "b"))) is str
    assert checks.flag("f", np.True_) is True


@pytest.mark.parametrize("value", [0, 1, -1, np.nan, np.inf, "1", None, True])
def test_numbers_outside_are_named(value):
    message = r"`x` must be a finite number > 0 and < 1. Received: x="
    with pytest.raises(ValueError, match=message):
        checks.number("x", value, low=0, high=1)


@pytest.mark.parametrize("value", [0, 1.0, "1", None, True])
def test_counts_are_integers(value):
    with pytest.raises(ValueError, match="`n` must be an integer >= 1"):
        checks.count("n", value)


def test_the_nearest_choice_is_offered():
    with pytest.raises(ValueError, match="Did you mean 'label'.*c='labels'"):
        checks.choice("c", "labels", ("bin", "label"))
    with pytest.raises(ValueError, match="'bin', 'label'. Received: c=None"):
        checks.choice("c", None, ("bin", "label"))


@pytest.mark.parametrize("value", [1, "True", None, [], np.array([True])])
def test_flags_are_booleans(value):
    with pytest.raises(ValueError, match="`f` must be True or False. Received"):
        checks.flag("f", value)


@pytest.mark.parametrize("value", [True, [1], np.array([1, 2]), {}])
def test_what_cannot_be_compared_is_no_choice(value):
    with pytest.raises(ValueError, match="`norm` must be one of 1, 2"):
        checks.choice("norm", value, (1, 2))


@pytest.mark.parametrize(
    "value", [None, {}, object(), "0.5", [1j], [[1], [1, 2]], {1, 2}]
)
def test_what_is_no_array_of_numbers_is_named(value):
    with pytest.raises(ValueError, match="`x` must .*Received: x of type"):
        checks.as_array("x", value)


def test_arrays_are_not_copied():
    array = np.ones(3, np.float32)
    assert checks.as_array("x", array) is array


def test_probabilities_are_recognised():
    probs = np.array([[0.2, 0.8], [1.0, 0.0]])
    assert checks.are_probabilities(probs)
    assert not checks.are_probabilities(probs * 2)
    assert not checks.are_probabilities(np.array([[0.2, 0.8], [1.5, -0.5]]))
    assert not checks.are_probabilities(np.zeros((0, 2)))


def test_a_warning_points_at_the_users_line():
    # A function that a library of ours calls, itself called by Keras.
    namespace = {"__name__": "keras.src.models", "checks": checks}
    exec("def fit():\n    checks.warn('look here')", namespace)
    user = types.SimpleNamespace(fit=namespace["fit"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        user.fit()
    assert caught[0].filename == __file__
