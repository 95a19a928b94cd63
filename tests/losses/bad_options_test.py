import numpy as np
import pytest

import caltrain_tf as ct

INF, NAN = float("inf"), float("nan")
BAD_OPTIONS = [
    ("nll", "label_smoothing", [-0.1, 1.0, NAN, "much"]),
    ("focal", "gamma", [-1, INF, NAN, "flsd", None]),
    ("sb_ece", "num_bins", [0, -3, 2.5, True, None]),
    ("sb_ece", "temperature", [0, -0.1, INF, NAN]),
    ("sb_ece", "norm", [0.5, 0, -1, INF, NAN]),
    ("sb_ece", "binning", ["bins", None, 3]),
    ("sb_ece", "lower", [-0.1, 1.0, "change"]),
    ("s_avuc", "threshold", [0, 1, -0.5, 1.5, NAN]),
    ("s_avuc", "temperature", [0, -1]),
    ("avuc", "threshold", [0, -0.1, INF]),
    ("avuc_gs", "threshold", [0]),
    ("mmce", "width", [0, -0.4, 0.001]),
    ("sb_marginal_ece", "num_bins", [0]),
    ("sb_marginal_ece", "temperature", [-1]),
    ("sb_marginal_ece", "norm", [0.9]),
    ("sb_marginal_ece", "binning", ["labels"]),
]


@pytest.mark.parametrize(("name", "option", "values"), BAD_OPTIONS)
def test_a_bad_option_is_named_at_construction(name, option, values):
    function = ct.losses.get(name).function
    for value in values:
        expected = f"`{option}`.*Received: {option}="
        with pytest.raises(ValueError, match=expected):
            ct.losses.get(name, **{option: value})
        with pytest.raises(ValueError, match=expected):
            function([0, 1], np.full((2, 2), 0.5), **{option: value})
