"""Gives TensorFlow two CPU devices, so that tests run on real replicas."""

import os
import signal

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Every core runs its own tests, so each process uses one thread. Programs that
# tests start inherit this.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# Tests run a compiled JAX program once, so optimising it does not pay off.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def pytest_configure(config):
    # Programs that a shell starts in the background ignore Ctrl-C, and so do
    # their child processes, but tests send it to child processes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The process that only distributes tests to workers needs no TensorFlow.
    if config.getoption("dist") != "no":
        return
    import tensorflow as tf

    # Not in a fixture, because devices cannot change after their first use.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )


@pytest.fixture(scope="session")
def two_replicas():
    """A strategy over two CPU devices, shared by all tests.

    A second strategy would number its collectives from the start again, and
    TensorFlow would confuse them with those of the first strategy.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
