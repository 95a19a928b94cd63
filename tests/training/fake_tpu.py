"""A real `TPUStrategy` on CPU devices: what a TPU would run is traced.

Nothing is executed, because these devices have no TPU kernels.
"""

import collections

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.tpu import tpu_system_metadata

import caltrain_tf as ct
from caltrain_tf.training.strategy import TrainingInput, evaluation_input
from tests.training import tiny


class TPU(tf.distribute.TPUStrategy):
    """Has the CPU devices of some hosts as its cores.

    Args:
        cores: Names of devices by the name of their host's CPU device.
    """

    def __init__(self, cores):
        self.cores = [core for of_host in cores.values() for core in of_host]
        self.hosts = list(cores)
        extended = tpu_strategy.TPUExtended(self, self)
        tf.distribute.Strategy.__init__(self, extended)
        devices = [[core] for core in self.cores]
        extended._tpu_devices = np.array(devices, object)
        extended._host_device = self.hosts[0]
        extended._device_input_worker_devices = collections.OrderedDict(cores)
        extended._host_input_worker_devices = collections.OrderedDict(
            (host, [host] * len(cores[host])) for host in cores
        )
        self._enable_packed_variable_in_eager_mode = False

    # What the strategy asks of its cluster resolver, which it is itself.

    def get_tpu_system_metadata(self):
        device = collections.namedtuple("Device", ["name", "device_type"])
        names = [
            f"{core.partition('/device:')[0]}/device:TPU:{index}"
            for index, core in enumerate(self.cores)
        ]
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=len(names),
            num_hosts=len(self.hosts),
            num_of_cores_per_host=len(names) // len(self.hosts),
            topology=None,
            devices=[device(name, "TPU") for name in names],
        )

    def cluster_spec(self):
        return tf.train.ClusterSpec({})


def check_programs(tpu, train):
    """Traces steps, evaluation and prediction; counts the sums of a step."""
    accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
    source, sums = TrainingInput(tpu, "dataset", train), []
    for loss in (ct.losses.NLL(from_logits=True), tiny.composite("mmce")):
        trained = tiny.trainer(tpu, loss=loss, metrics=[accuracy])
        batches = source.batches(0, 0)
        operations = _operations(
            trained._train.function, iter(batches), tf.constant(3)
        )
        sums.append(operations["CrossReplicaSum"])
    # The gradient of every weight, at least, and what the loss adds up.
    assert 4 <= sums[0] < sums[1]
    # Built on the host that reads it, as remote hosts need it.
    data = evaluation_input(tpu, lambda context: tiny.dataset())
    for function in (trained._evaluate_batch, trained._predict_batch):
        names = _operations(function, iter(data).element_spec)
        assert any(name.startswith("TPUReplicate") for name in names)


def _operations(function, *arguments):
    """The number of operations of each kind in all graphs of a function."""
    traced = function.get_concrete_function(*arguments)
    graph = traced.graph.as_graph_def()
    nodes = [*graph.node]
    for each in graph.library.function:
        nodes += each.node_def
    return collections.Counter(node.op for node in nodes)


def check_checkpoints(tpu, folder):
    """Asserts that weights and optimizer are saved and restored."""

    def checkpoints(trained):
        variables = {
            "model": trained.model.weights,
            "optimizer": trained.optimizer.variables,
        }
        return ct.training.checkpoints.Checkpoints(folder, variables)

    one, other = tiny.trainer(tpu), tiny.trainer(tpu)
    for variable in one.model.weights:
        variable.assign(variable + 1)
    saved = checkpoints(one)
    saved.position.step = 7
    saved.save()
    saved.wait()
    assert checkpoints(other).restore().endswith("ckpt-7")
    tiny.assert_same_weights(one, other)
