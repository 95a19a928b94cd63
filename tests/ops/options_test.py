import numpy as np
import pytest

from caltrain_tf.ops.options import check_choice
from caltrain_tf.ops.options import check_count
from caltrain_tf.ops.options import check_number


def test_good_options_pass():
    check_number("x", 0.5, low=0, high=1)
    check_number("x", 0, low=0, closed=True)
    check_number("x", np.float32(2), low=1)
    check_count("n", np.int64(3))
    check_count("n", 0, low=0)
    check_choice("c", "b", ("a", "b"))


@pytest.mark.parametrize("value", [0, 1, -1, np.nan, np.inf, "1", None, True])
def test_numbers_outside_are_named(value):
    message = r"`x` must be a finite number > 0 and < 1. Received: x="
    with pytest.raises(ValueError, match=message):
        check_number("x", value, low=0, high=1)


@pytest.mark.parametrize("value", [0, 1.0, "1", None, True])
def test_counts_are_integers(value):
    with pytest.raises(ValueError, match="`n` must be an integer >= 1"):
        check_count("n", value)


def test_the_nearest_choice_is_offered():
    with pytest.raises(ValueError, match="Did you mean 'label'.*c='labels'"):
        check_choice("c", "labels", ("bin", "label"))
    with pytest.raises(ValueError, match="'bin', 'label'. Received: c=None"):
        check_choice("c", None, ("bin", "label"))
