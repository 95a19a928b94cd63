import numpy as np
import pytest

import caltrain_tf as ct
from tests.metrics.cases import sample


def test_a_diagram_of_each_group():
    logits, labels = sample(240, 3)
    tokens = logits.reshape(40, 6, 3), labels.reshape(40, 6)
    groups = np.array(["b", "a"])[np.arange(40) % 2]
    weight = 1.0 * (np.arange(40) >= 10)
    figure = ct.figures.group_reliability(
        *tokens, groups, from_logits=True, sample_weight=weight, columns=2
    )
    table = ct.metrics.groupwise(
        ct.metrics.calibration_error,
        *tokens,
        groups,
        from_logits=True,
        sample_weight=weight,
    )
    errors = {"all": table.overall, **table.values}
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["all (180)", "a (90)", "b (90)"]
    for ax, error in zip(figure.axes, errors.values(), strict=True):
        title = ax.get_legend().get_title().get_text()
        assert title == f"ECE {100 * error:.2f}%"
    left, right, below = (ax.get_position() for ax in figure.axes)
    assert left.y0 == right.y0 and left.x0 == below.x0


def test_too_many_groups():
    logits, labels = sample(100, 3)
    with pytest.raises(ValueError, match="at most 60 .* Received: 100"):
        ct.figures.group_reliability(
            logits, labels, np.arange(100), from_logits=True
        )
