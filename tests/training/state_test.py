import keras
import numpy as np
import tensorflow as tf

from tests.training import tiny


def test_moving_statistics_are_the_mean_over_replicas(two_replicas):
    def make_network():
        return tiny.network(keras.layers.BatchNormalization(momentum=0.0))

    trained = tiny.trainer(two_replicas, make_network, jit_compile=True)
    before = tiny.weights(trained)
    x, _ = tiny.arrays(16)
    hidden = x @ before[0] + before[1]
    trained.fit(tiny.dataset(16), epochs=1, verbose=False)
    layer = trained.model.layers[1]
    copies = two_replicas.experimental_local_results(layer.moving_mean.value)
    for copy in copies:
        np.testing.assert_allclose(copy, hidden.mean(axis=0), atol=1e-6)
    variance = (hidden[:8].var(axis=0) + hidden[8:].var(axis=0)) / 2
    np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-5)


def test_replicas_drop_out_differently(two_replicas):
    rows = []

    class Record(keras.metrics.Metric):
        def __init__(self, name="record", **kwargs):
            super().__init__(name=name, **kwargs)
            self.sums = self.add_variable((2,), "zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            replica = tf.distribute.get_replica_context()
            row = tf.one_hot(replica.replica_id_in_sync_group, 2)
            self.sums.assign_add(row * tf.reduce_sum(tf.abs(y_pred)))

        def result(self):
            rows.append(self.sums.numpy())
            return 0.0

    def make_network():
        return tiny.network(dropout=0.5)

    same = tf.data.Dataset.from_tensor_slices(
        (tf.ones([16, tiny.FEATURES]), tf.zeros([16], tf.int64))
    ).batch(16, drop_remainder=True)
    trained = tiny.trainer(two_replicas, make_network, metrics=[Record()])
    trained.fit(same, epochs=1, verbose=False)
    assert rows[0][0] != rows[0][1]
    state = trained.model.layers[2].seed_generator.state
    copies = two_replicas.experimental_local_results(state.value)
    assert [copy.numpy().tolist() for copy in copies] == [[5, 1], [5, 1]]
