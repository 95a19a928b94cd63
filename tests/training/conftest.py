"""One strategy for all tests of the room."""

import pytest
import tensorflow as tf


class _Mirrored(tf.distribute.MirroredStrategy):
    # Collectives of two strategies in one process share their keys, and with
    # other shapes under the same key TensorFlow gives up. Not so from here on.
    _collective_key_base = 100_000


@pytest.fixture(scope="session")
def two_replicas():
    """A strategy over two CPU devices."""
    return _Mirrored(["CPU:0", "CPU:1"])
