import keras
import numpy as np
import pytest

from caltrain_tf.training import WarmUpStepDecay


def _reference(step, base, steps_per_epoch, ratio, decay_epochs, warmup):
    epoch = step / steps_per_epoch
    if epoch < warmup:
        return base * epoch / warmup
    return base * ratio ** sum(epoch >= start for start in decay_epochs)


@pytest.mark.parametrize(
    "arguments",
    [
        (0.4, 97, 0.2, [60, 120, 160], 1),
        (1.6, 313, 0.1, [30, 60, 80], 5),
        (0.1, 10, 0.5, [], 0),
    ],
)
def test_equals_uncertainty_baselines(arguments):
    schedule = WarmUpStepDecay(*arguments)
    base, steps_per_epoch, ratio, decay_epochs, warmup = arguments
    edges = [epoch * steps_per_epoch for epoch in [warmup, *decay_epochs]]
    steps = {0, 1, 7, *edges, *[max(edge - 1, 0) for edge in edges], 10**5}
    for step in steps:
        np.testing.assert_allclose(
            float(schedule(step)), _reference(step, *arguments), rtol=1e-6
        )
    optimizer = keras.optimizers.SGD(schedule)
    copy = keras.optimizers.SGD.from_config(optimizer.get_config())
    assert copy._learning_rate.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    "arguments",
    [
        (0.0, 10, 0.1, [1]),
        (0.1, 0, 0.1, [1]),
        (0.1, 10, 0.0, [1]),
        (0.1, 10, 0.1, [3, 2]),
        (0.1, 10, 0.1, [3], 5),
        (0.1, 10, 0.1, [3], -1),
    ],
)
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match="Received: "):
        WarmUpStepDecay(*arguments)
