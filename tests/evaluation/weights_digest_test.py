import keras
import numpy as np
import tensorflow as tf

from caltrain_tf.evaluation.weights_digest import weights_digest


def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
    )


def test_it_is_of_the_weights_alone():
    network = model()
    digest = weights_digest(network)
    assert digest == weights_digest(model())
    # Dropout's random numbers move on, metrics count; moving means do count.
    network.compile("sgd", "mse", metrics=["mae"])
    network.evaluate(np.ones((2, 4)), np.ones((2, 3)), verbose=0)
    assert weights_digest(network) == digest
    network(np.ones((2, 4)), training=True)
    assert weights_digest(network) != digest


def test_shapes_count():
    first, second = tf.Module(), tf.Module()
    first.w, second.w = tf.Variable([[1.0, 2.0]]), tf.Variable([1.0, 2.0])
    assert weights_digest(first) != weights_digest(second)
    assert weights_digest(lambda images: images) is None
