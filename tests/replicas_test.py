import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf import replicas


def test_alone_nothing_happens():
    x = tf.constant([1.0, 2.0])
    assert replicas.replica_count() == 1
    assert replicas.sum_over_replicas(x) is x
    assert replicas.gather_over_replicas(x) is x


def test_sum_and_gather_over_replicas(two_replicas):
    values = two_replicas.experimental_distribute_values_from_function(
        lambda context: tf.constant([1.0 + context.replica_id_in_sync_group])
    )

    @tf.function
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = replicas.sum_over_replicas(x)
            loss = tf.reduce_sum(total**2) / replicas.replica_count()
        joined = replicas.gather_over_replicas(x)
        return total, joined, tape.gradient(loss, x)

    outputs = two_replicas.run(both, args=(values,))
    for total, joined, gradient in zip(
        *map(two_replicas.experimental_local_results, outputs), strict=True
    ):
        np.testing.assert_array_equal(total, [3.0])
        np.testing.assert_array_equal(joined, [1.0, 2.0])
        np.testing.assert_array_equal(gradient, [6.0])


@pytest.mark.parametrize(
    "collective",
    [replicas.sum_over_replicas, replicas.gather_over_replicas],
)
def test_xla_is_refused_where_it_would_be_wrong(collective, two_replicas):
    compiled = tf.function(collective, jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile=False"):
        two_replicas.run(compiled, args=(tf.ones([1]),))


def test_the_whole_batch_needs_no_collective(two_replicas):
    with two_replicas.scope():
        x = tf.constant([1.0, 2.0])
        assert replicas.sum_over_replicas(x) is x
