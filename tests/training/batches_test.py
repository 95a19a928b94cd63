import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.training import batches


def _numbers(examples, batch, drop_remainder=True):
    data = tf.data.Dataset.range(examples)
    data = data.map(lambda i: ({"image": tf.fill([2], i)}, i))
    return data.batch(batch, drop_remainder=drop_remainder)


def test_replicas_get_contiguous_parts_in_order(two_replicas):
    distributed = batches.distribute(two_replicas, _numbers(16, 8))
    local = two_replicas.experimental_local_results
    parts = [
        [part.numpy().tolist() for part in local(y)] for _, y in distributed
    ]
    assert parts == [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[8, 9, 10, 11], [12, 13, 14, 15]],
    ]


def test_one_replica_gets_the_dataset():
    strategy = tf.distribute.get_strategy()
    ragged = _numbers(10, 4, drop_remainder=False)
    rows = [y.numpy().tolist() for _, y in batches.distribute(strategy, ragged)]
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("drop_remainder", [True, False])
def test_padding_has_weight_zero(two_replicas, drop_remainder):
    data = _numbers(10, 5, drop_remainder)
    padded = list(batches.pad(two_replicas, data))
    assert [len(y) for _, y, _ in padded] == [6, 6]
    for _, _, weight in padded:
        np.testing.assert_array_equal(weight, [1, 1, 1, 1, 1, 0])
    x, y, _ = padded[1]
    np.testing.assert_array_equal(y, [5, 6, 7, 8, 9, 0])
    assert x["image"].shape == (6, 2)
    spec = batches.pad(two_replicas, data).element_spec
    assert spec[2].shape == (6,)


def test_padding_keeps_weights_and_inputs_without_labels():
    strategy = tf.distribute.get_strategy()
    x = tf.reshape(tf.range(6.0), [3, 2])
    data = tf.data.Dataset.from_tensor_slices(x).batch(2)
    padded = list(batches.pad(strategy, data))
    np.testing.assert_array_equal(padded[1][0], [[4.0, 5.0], [0.0, 0.0]])
    weighted = tf.data.Dataset.from_tensor_slices((x, [0, 1, 2], [0.5, 2, 3]))
    _, _, weight = list(batches.pad(strategy, weighted.batch(2)))[1]
    np.testing.assert_array_equal(weight, [3.0, 0.0])


def test_empty_datasets_are_refused():
    strategy = tf.distribute.get_strategy()
    empty = _numbers(4, 2, drop_remainder=False).take(0)
    with pytest.raises(ValueError, match="no batch"):
        batches.pad(strategy, empty)
    with pytest.raises(ValueError, match="cardinality=0"):
        batches.count_batches("dataset", empty, None)


def test_datasets_may_ask_for_their_own_sharding(two_replicas):
    # Only of interest to several machines: on one the policy changes nothing.
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    data = _numbers(8, 4).with_options(options)
    local = two_replicas.experimental_local_results
    for _, y in batches.distribute(two_replicas, data):
        assert [len(part) for part in local(y)] == [2, 2]
