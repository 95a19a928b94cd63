"""What a network runs on."""

import tensorflow as tf


def is_processor_alone():
    """Whether there is no accelerator: networks and input share the cores."""
    devices = tf.config.list_logical_devices()
    return all(device.device_type == "CPU" for device in devices)
