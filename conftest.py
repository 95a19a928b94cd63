"""Set before TensorFlow starts: two CPU devices, so that replicas are real."""

import os
import signal

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Cores have tests of their own; the programs that these start inherit it.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# JAX compiles each small program once, to run it once.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def pytest_configure(config):
    # A shell lets what it starts in the background ignore Ctrl-C, and so do
    # the programs that are started from there: tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The process that only deals tests out to others needs no TensorFlow.
    if config.getoption("dist") != "no":
        return
    import tensorflow as tf

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
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
