"""Layers shared by the wide residual networks and ResNet-50."""

import keras
from keras import layers

from caltrain_tf import checks
from caltrain_tf.layers import BatchNormalization


def convolution(x, filters, kernel_size, *, name, strides=1, padding="same"):
    """Applies a convolution without bias and with He initialisation."""
    return layers.Conv2D(
        filters,
        kernel_size,
        strides=strides,
        padding=padding,
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(x)


def batch_norm(x, *, name):
    """Applies batch normalisation with the constants of the paper's recipe."""
    return BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)


def logits(x, num_classes, *, kernel_initializer):
    """Applies global average pooling and a dense layer that returns logits.

    Both are computed in float32 under any dtype policy. A bfloat16 logit has 8
    bits of precision, so different confidences close to 1 would be rounded to
    the same value before a calibration loss sees them.
    """
    x = layers.GlobalAveragePooling2D(dtype="float32", name="pool")(x)
    return layers.Dense(
        num_classes,
        kernel_initializer=kernel_initializer,
        dtype="float32",
        name="logits",
    )(x)


def check_sizes(input_shape, num_classes):
    """Raises if the shape is not (height, width, channels) or classes < 1."""
    shape = tuple(input_shape)
    is_image = len(shape) == 3 and all(
        isinstance(size, int) and size >= 1 for size in shape
    )
    if not is_image:
        raise ValueError(
            "`input_shape` must be (height, width, channels), each >= 1. "
            f"Received: input_shape={input_shape!r}"
        )
    checks.count("num_classes", num_classes)


def image_input(input_shape):
    """Returns the network's input."""
    return keras.Input(tuple(input_shape), name="image")
