"""Set before TensorFlow starts: two CPU devices, so that replicas are real."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

# A fixture would be too late: devices are fixed at their first use.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)


@pytest.fixture(scope="session")
def two_replicas():
    """A strategy over two CPU devices.

    One for all tests: a second one would number its collectives from the start
    again, and TensorFlow takes them for the first one's.
    """
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
