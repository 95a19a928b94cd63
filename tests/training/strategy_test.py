import pytest
import tensorflow as tf

from caltrain_tf.training import get_strategy
from caltrain_tf.training import is_chief


def test_one_device_without_gpus():
    strategy = get_strategy()
    assert strategy.num_replicas_in_sync == 1
    assert is_chief(strategy)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tpu": "local", "num_gpus": 1},
        {"tpu": "local", "multi_worker": True},
        {"num_gpus": 1, "multi_worker": True},
    ],
)
def test_contradictions(arguments):
    with pytest.raises(ValueError, match="Received: .*num_gpus="):
        get_strategy(**arguments)


@pytest.mark.parametrize("num_gpus", [-1, 1000, 1.5, True])
def test_gpus_that_are_not_there(num_gpus):
    with pytest.raises(ValueError, match="num_gpus="):
        get_strategy(num_gpus=num_gpus)


def test_a_tpu_that_is_not_there(monkeypatch):
    def resolve(tpu):
        raise ValueError("Please provide a TPU Name to connect to.")

    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", resolve)
    with pytest.raises(ValueError, match="No TPU was found.*tpu='v5'"):
        get_strategy(tpu="v5")
    with pytest.raises(ValueError, match="tpu=''"):
        get_strategy(tpu="")


@pytest.mark.parametrize("value", [None, "{}", "not json", "[]"])
def test_multi_worker_needs_tf_config(monkeypatch, value):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        get_strategy(multi_worker=True)
