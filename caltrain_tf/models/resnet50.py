"""ResNet-50, version 1.5."""

import keras
from keras import layers

from caltrain_tf.models.layers import (
    batch_norm,
    check_sizes,
    convolution,
    image_input,
    logits,
)

# Blocks, filters of the 3x3 convolution, and stride of each stage.
_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))


def resnet50(input_shape=(224, 224, 3), num_classes=1000, name=None):
    """Builds ResNet-50 v1.5, which strides in the 3x3 convolutions.

    The network has a 7x7 convolution and a max pooling, both with stride 2,
    followed by four stages of 3, 4, 6 and 3 bottleneck blocks with 256, 512,
    1024 and 2048 output channels. It has no l2 penalty of its own: weight decay
    is an option of training.

    Args:
        input_shape: (height, width, channels).
        num_classes: The number of logits.
        name: The model's name; `"resnet-50"` when not given.

    Returns:
        A `keras.Model` from images to float32 logits `(batch, num_classes)`.

    Example:
        >>> import caltrain_tf as ct
        >>> model = ct.models.resnet50()  # doctest: +SKIP
        >>> model.count_params()  # doctest: +SKIP
        25610152

    Reference:
        He et al., "Deep Residual Learning for Image Recognition", 2015.
    """
    check_sizes(input_shape, num_classes)
    image = image_input(input_shape)
    # Pads both sides equally; "same" would pad by 2 and 3.
    x = layers.ZeroPadding2D(3, name="stem_pad")(image)
    x = convolution(x, 64, 7, strides=2, padding="valid", name="stem_conv")
    x = batch_norm(x, name="stem_bn")
    x = layers.ReLU(name="stem_relu")(x)
    x = layers.MaxPooling2D(3, 2, padding="same", name="stem_pool")(x)
    for stage, (num_blocks, filters, strides) in enumerate(_STAGES, 1):
        for block in range(1, num_blocks + 1):
            x = _block(
                x,
                filters,
                strides if block == 1 else 1,
                name=f"stage{stage}_block{block}",
            )
    small = keras.initializers.RandomNormal(stddev=0.01)
    y = logits(x, num_classes, kernel_initializer=small)
    return keras.Model(image, y, name=name or "resnet-50")


def _block(x, filters, strides, *, name):
    """Applies a 1x1, a 3x3 and a 1x1 convolution and adds the shortcut."""
    y = convolution(x, filters, 1, name=f"{name}_conv1")
    y = batch_norm(y, name=f"{name}_bn1")
    y = layers.ReLU(name=f"{name}_relu1")(y)
    y = convolution(y, filters, 3, strides=strides, name=f"{name}_conv2")
    y = batch_norm(y, name=f"{name}_bn2")
    y = layers.ReLU(name=f"{name}_relu2")(y)
    y = convolution(y, 4 * filters, 1, name=f"{name}_conv3")
    y = batch_norm(y, name=f"{name}_bn3")
    if strides != 1 or x.shape[-1] != 4 * filters:
        shortcut = f"{name}_shortcut"
        x = convolution(x, 4 * filters, 1, strides=strides, name=shortcut)
        x = batch_norm(x, name=f"{shortcut}_bn")
    y = layers.Add(name=f"{name}_add")([x, y])
    return layers.ReLU(name=f"{name}_relu3")(y)
