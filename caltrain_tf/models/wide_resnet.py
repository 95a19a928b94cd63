"""Wide residual networks, WRN-n-k."""

import keras
from keras import layers

from caltrain_tf import checks
from caltrain_tf.models.layers import (
    batch_norm,
    check_sizes,
    convolution,
    image_input,
    logits,
)


def wide_resnet(
    depth, width, input_shape=(32, 32, 3), num_classes=10, name=None
):
    """Builds WRN-n-k: n convolutions deep, k times as wide as a ResNet.

    The network has three groups of (n - 4) / 6 pre-activation blocks with 16k,
    32k and 64k filters; the second and the third group halve the image size. As
    in Uncertainty Baselines, the shortcut of a block that changes the shape is
    a 1x1 convolution of the block's input before normalisation. The network has
    no dropout and no l2 penalty of its own: weight decay is an option of
    training.

    Args:
        depth: n, which must be 6m + 4: 10, 16, 22, 28, 40...
        width: k, at least 1.
        input_shape: (height, width, channels).
        num_classes: The number of logits.
        name: The model's name; `"wrn-<depth>-<width>"` when not given.

    Returns:
        A `keras.Model` from images to float32 logits `(batch, num_classes)`.

    Example:
        >>> import caltrain_tf as ct
        >>> model = ct.models.wide_resnet(10, 1, num_classes=100)
        >>> model.name, model.output_shape
        ('wrn-10-1', (None, 100))

    Reference:
        Zagoruyko and Komodakis, "Wide Residual Networks", 2016.
    """
    checks.count("depth", depth)
    checks.count("width", width)
    check_sizes(input_shape, num_classes)
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(
            "`depth` must be 6m + 4 with m >= 1, such as 10, 16, 22, 28 or 40. "
            f"Received: depth={depth}"
        )
    image = image_input(input_shape)
    x = convolution(image, 16, 3, name="stem_conv")
    for group, (filters, strides) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
        for block in range(1, (depth - 4) // 6 + 1):
            x = _block(
                x,
                filters * width,
                strides if block == 1 else 1,
                name=f"group{group}_block{block}",
            )
    x = batch_norm(x, name="final_bn")
    x = layers.ReLU(name="final_relu")(x)
    y = logits(x, num_classes, kernel_initializer="he_normal")
    return keras.Model(image, y, name=name or f"wrn-{depth}-{width}")


def _block(x, filters, strides, *, name):
    """Applies two 3x3 convolutions, each after batch norm and ReLU."""
    y = batch_norm(x, name=f"{name}_bn1")
    y = layers.ReLU(name=f"{name}_relu1")(y)
    y = convolution(y, filters, 3, strides=strides, name=f"{name}_conv1")
    y = batch_norm(y, name=f"{name}_bn2")
    y = layers.ReLU(name=f"{name}_relu2")(y)
    y = convolution(y, filters, 3, name=f"{name}_conv2")
    if strides != 1 or x.shape[-1] != filters:
        x = convolution(x, filters, 1, strides=strides, name=f"{name}_shortcut")
    return layers.Add(name=f"{name}_add")([x, y])
