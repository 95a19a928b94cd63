import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.training import get_strategy, is_chief
from caltrain_tf.training.strategy import TrainingInput, evaluation_input


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
        {"num_gpus": -1},
        {"num_gpus": 1000},
        {"num_gpus": True},
    ],
)
def test_what_cannot_be(arguments):
    with pytest.raises(ValueError, match="Received: .*num_gpus="):
        get_strategy(**arguments)


def test_gpus_get_memory_as_they_need_it(monkeypatch):
    grown = []

    def set_memory_growth(gpu, enable):
        grown.append((gpu, enable))
        if gpu == "second":
            raise RuntimeError("Physical devices cannot be modified")

    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: ["first", "second"]
    )
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", set_memory_growth
    )
    assert get_strategy(num_gpus=0).num_replicas_in_sync == 1
    assert grown == [("first", True), ("second", True)]


@pytest.mark.skipif(
    not tf.test.is_built_with_cuda()
    or bool(tf.config.list_physical_devices("GPU")),
    reason="needs a TensorFlow with CUDA that finds no GPU",
)
def test_errors_of_cuda_are_shown():
    scripts = pathlib.Path(__file__).parents[2] / "baselines"
    hidden = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES")
    program = "import flags; from caltrain_tf import training; training."
    done = subprocess.run(
        [sys.executable, "-c", f"{program}get_strategy()"],
        # As for a user: without what our conftest.py sets.
        env={k: v for k, v in os.environ.items() if k not in hidden}
        | {"PYTHONPATH": f"{scripts}{os.pathsep}{scripts.parent}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "failed call to cuInit" in done.stderr


def test_a_tpu_that_is_not_there(monkeypatch):
    def resolve(tpu):
        raise ValueError("Please provide a TPU Name to connect to.")

    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", resolve)
    with pytest.raises(ValueError, match="No TPU was found.*tpu='v5'") as seen:
        get_strategy(tpu="v5")
    # What to do is on the first line, and the cause is not lost.
    cause = str(seen.value).splitlines()[1]
    assert (
        cause == "Cause: ValueError: Please provide a TPU Name to connect to."
    )
    assert isinstance(seen.value.__cause__, ValueError)


def test_tensorflow_without_tpu_kernels_says_so():
    with pytest.raises(ValueError, match="`tensorflow-tpu`") as seen:
        get_strategy(tpu="local")
    assert "Cause: " in str(seen.value)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_gpu_that_tensorflow_does_not_see(monkeypatch, hidden):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        get_strategy()
        return
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.warns(UserWarning, match=r"tensorflow\[and-cuda\]"):
        get_strategy()
    get_strategy(num_gpus=0)


def test_multi_worker_needs_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        get_strategy(multi_worker=True)


def _numbers(examples, batch, drop_remainder=True):
    data = tf.data.Dataset.range(examples)
    data = data.map(lambda i: ({"image": tf.fill([2], i)}, i))
    return data.batch(batch, drop_remainder=drop_remainder)


def _parts(strategy, distributed, index=1):
    local = strategy.experimental_local_results
    return [
        [part.numpy().tolist() for part in local(batch[index])]
        for batch in distributed
    ]


def test_replicas_get_contiguous_parts_in_order(two_replicas):
    source = TrainingInput(two_replicas, "dataset", _numbers(24, 8))
    assert source.steps == 3
    assert _parts(two_replicas, source.batches(0, first_step=1)) == [
        [[8, 9, 10, 11], [12, 13, 14, 15]],
        [[16, 17, 18, 19], [20, 21, 22, 23]],
    ]


def test_one_replica_gets_the_dataset():
    strategy = tf.distribute.get_strategy()
    ragged = _numbers(10, 4, drop_remainder=False)
    source = TrainingInput(strategy, "dataset", lambda epoch: ragged)
    rows = _parts(strategy, source.batches(3, 0))
    assert rows == [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[8, 9]]]


@pytest.mark.parametrize("takes_first_step", [True, False])
def test_a_host_builds_its_own_part(two_replicas, takes_first_step):
    seen = []

    def build(epoch, context):
        seen.append((epoch, context.num_replicas_in_sync))
        size = context.get_per_replica_batch_size(4)
        data = tf.data.Dataset.range(10 * epoch, 10 * epoch + 10)
        return data.batch(size, drop_remainder=True).map(lambda i: (i, i))

    def build_from(epoch, context, first_step=0):
        return build(epoch, context).skip(2 * first_step)

    function = build_from if takes_first_step else build
    source = TrainingInput(two_replicas, "dataset", function)
    assert source.steps == 2
    batches = source.batches(3, first_step=1)
    # The batch that is left over is beyond the epoch's steps.
    assert _parts(two_replicas, batches)[0] == [[34, 35], [36, 37]]
    assert seen == [(0, 2), (3, 2)]
    # Nothing is built to be counted where the steps are known.
    assert TrainingInput(two_replicas, "dataset", function, 7).steps == 7
    assert len(seen) == 2


@pytest.mark.parametrize("drop_remainder", [True, False])
def test_padding_has_weight_zero(two_replicas, drop_remainder):
    data = _numbers(10, 5, drop_remainder)
    distributed = evaluation_input(two_replicas, data)
    weights = _parts(two_replicas, distributed, index=2)
    assert weights == [[[1, 1, 1], [1, 1, 0]]] * 2
    rows = _parts(two_replicas, distributed)
    assert rows == [[[0, 1, 2], [3, 4, 0]], [[5, 6, 7], [8, 9, 0]]]
    x, _, _ = next(iter(distributed))
    local = two_replicas.experimental_local_results(x["image"])
    assert [part.shape for part in local] == [(3, 2)] * 2


def test_padding_keeps_weights_and_inputs_without_labels():
    strategy = tf.distribute.get_strategy()
    x = tf.reshape(tf.range(6.0), [3, 2])
    data = tf.data.Dataset.from_tensor_slices(x).batch(2)
    # The whole set, or what a host builds of it.
    for source in (data, lambda context: data):
        padded = list(evaluation_input(strategy, source))
        np.testing.assert_array_equal(padded[1][0], [[4.0, 5.0], [0.0, 0.0]])
    weighted = tf.data.Dataset.from_tensor_slices((x, [0, 1, 2], [0.5, 2, 3]))
    padded = list(evaluation_input(strategy, weighted.batch(2)))
    np.testing.assert_array_equal(padded[1][2], [3.0, 0.0])


def test_empty_datasets_are_refused():
    strategy = tf.distribute.get_strategy()
    empty = _numbers(4, 2, drop_remainder=False).take(0)
    with pytest.raises(ValueError, match="no batch"):
        evaluation_input(strategy, empty)
    with pytest.raises(ValueError, match="batches=0"):
        TrainingInput(strategy, "dataset", empty)
    with pytest.raises(ValueError, match="must be a `tf.data.Dataset`"):
        TrainingInput(strategy, "dataset", lambda epoch, context: [1])
