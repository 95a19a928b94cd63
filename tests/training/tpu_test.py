"""A real `TPUStrategy` on CPU devices: what a TPU would run is traced.

Nothing is executed, because these devices have no TPU kernels.
"""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.tpu import tpu_system_metadata

import caltrain_tf as ct
from tests.training import tiny

HOST = "/job:localhost/replica:0/task:0"
CORES = [f"{HOST}/device:CPU:0", f"{HOST}/device:CPU:1"]


class _Resolver:
    """Says that the two CPU devices are the cores of a TPU."""

    def get_tpu_system_metadata(self):
        device = collections.namedtuple("Device", ["name", "device_type"])
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=len(CORES),
            num_hosts=1,
            num_of_cores_per_host=len(CORES),
            topology=None,
            devices=[
                device(f"{HOST}/device:TPU:{index}", "TPU")
                for index in range(len(CORES))
            ],
        )

    def cluster_spec(self):
        return tf.train.ClusterSpec({})


class _Cores(tf.distribute.TPUStrategy):
    def __init__(self):
        extended = tpu_strategy.TPUExtended(self, _Resolver())
        tf.distribute.Strategy.__init__(self, extended)
        extended._tpu_devices = np.array([[core] for core in CORES], object)
        extended._host_device = CORES[0]
        extended._device_input_worker_devices = collections.OrderedDict(
            [(CORES[0], CORES)]
        )
        extended._host_input_worker_devices = collections.OrderedDict(
            [(CORES[0], [CORES[0]] * len(CORES))]
        )
        self._enable_packed_variable_in_eager_mode = False


@pytest.fixture(scope="module")
def tpu():
    return _Cores()


def _operations(function, *arguments):
    """The number of operations of each kind in all graphs of a function."""
    graph = function.get_concrete_function(*arguments).graph.as_graph_def()
    nodes = [*graph.node]
    for each in graph.library.function:
        nodes += each.node_def
    return collections.Counter(node.op for node in nodes)


def test_what_it_runs_on(tpu):
    assert ct.training.describe(tpu) == "2 TPU cores on 1 host"


def test_steps_evaluation_and_prediction_are_traced(tpu):
    metrics = [keras.metrics.SparseCategoricalAccuracy("accuracy")]
    count = tf.constant(3)
    sums = {}
    for name, loss in {
        "nll": ct.losses.NLL(from_logits=True),
        "both": tiny.composite("mmce"),
    }.items():
        trained = tiny.trainer(tpu, loss=loss, metrics=metrics)
        source = ct.training.strategy.TrainingInput(
            tpu, "dataset", tiny.dataset()
        )
        batches = iter(source.batches(0, 0))
        operations = _operations(trained._train_function, batches, count)
        sums[name] = operations["CrossReplicaSum"]
        data = ct.training.strategy.evaluation_input(tpu, tiny.dataset())
        for function in (trained._evaluate_function, trained._predict_function):
            operations = _operations(function, iter(data), count)
            assert any(name.startswith("TPUReplicate") for name in operations)
    # The gradient of every weight, at least, and what the loss adds up.
    assert 4 <= sums["nll"] < sums["both"]


def test_checkpoints(tpu, tmp_path):
    def checkpoints(trained):
        variables = {
            "model": trained.model.weights,
            "optimizer": trained.optimizer.variables,
        }
        return ct.training.checkpoints.Checkpoints(tmp_path, variables)

    one, other = tiny.trainer(tpu), tiny.trainer(tpu)
    for variable in one.model.weights:
        variable.assign(variable + 1)
    saved = checkpoints(one)
    saved.position.step = 7
    saved.save()
    saved.wait()
    restored = checkpoints(other)
    assert restored.restore().endswith("ckpt-7")
    tiny.assert_same_weights(one, other)
