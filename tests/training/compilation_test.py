import keras

from caltrain_tf.training.compilation import compiled_part
from tests.training import tiny


def test_what_is_compiled(two_replicas):
    class Talks:
        communicates = True

    class Silent:
        communicates = False

    plain = tiny.network()
    layer = keras.layers.BatchNormalization(synchronized=True)
    synchronized = tiny.network(layer)
    assert compiled_part(plain, Talks, True) == "step"
    assert compiled_part(plain, Talks, False) is None
    with two_replicas.scope():
        assert compiled_part(plain, Talks, True) == "forward"
        assert compiled_part(plain, Silent, True) == "gradients"
        assert compiled_part(synchronized, Silent, True) is None
