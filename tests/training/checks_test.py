import keras
import pytest

import caltrain_tf as ct
from tests.training import tiny


@pytest.mark.parametrize(
    "options, message",
    [
        ({"loss": "nll"}, "`loss` must be"),
        ({"metrics": ["accuracy"]}, "`metrics` must hold"),
        ({"metrics": [keras.metrics.Mean("loss")]}, "names of their own"),
        ({"l2": -1.0}, "l2=-1.0"),
        ({"l2": 0.1, "l2_on": "kernel"}, "a sequence of names"),
        ({"l2": 0.1, "l2_on": ["kernels"]}, "of bias, kernel. .*'kernels'"),
        ({"steps_per_execution": 0}, "steps_per_execution=0"),
        ({"clip_norm": 0}, "clip_norm=0"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        tiny.trainer(**options)


def test_model_and_optimizer_belong_to_the_strategy(two_replicas):
    model, loss = tiny.network(), tiny.composite()
    optimizer = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match="inside `with strategy.scope"):
        ct.training.Trainer(model, loss, optimizer, two_replicas)
    with two_replicas.scope():
        model = tiny.network()
        optimizer = keras.optimizers.SGD(0.1, global_clipnorm=1.0)
    with pytest.raises(ValueError, match="Pass `clip_norm` to the `Trainer`"):
        ct.training.Trainer(model, loss, optimizer, two_replicas)
    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="must be built"):
        ct.training.Trainer(unbuilt, loss, keras.optimizers.SGD(0.1))


def test_other_backends_are_told_what_to_do(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="TensorFlow.*`model.fit`.*'jax'"):
        ct.training.Trainer(None, tiny.composite(), None)
