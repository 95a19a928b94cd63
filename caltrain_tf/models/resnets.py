"""Wide residual networks and ResNet-50, as in Uncertainty Baselines."""

import functools

import keras
from keras import layers

from caltrain_tf import checks


def wide_resnet(depth, width, input_shape=(32, 32, 3), num_classes=10):
    """Builds WRN-n-k: n convolutions deep, k times as wide as a ResNet.

    The network has three groups of (n - 4) / 6 pre-activation blocks with 16k,
    32k and 64k filters; the second and the third group halve the image size. As
    in Uncertainty Baselines, the shortcut of a block that changes the shape is
    a 1x1 convolution of the block's input before normalisation.

    Args:
        depth: n, which must be 6m + 4: 10, 16, 22, 28, 40...
        width: k, at least 1.
        input_shape: (height, width, channels).
        num_classes: The number of float32 logits.

    Example:
        >>> import caltrain_tf as ct
        >>> model = ct.models.wide_resnet(10, 1, num_classes=100)
        >>> model.name, model.output_shape
        ('wrn-10-1', (None, 100))

    Reference:
        Zagoruyko and Komodakis, "Wide Residual Networks", 2016.
    """
    checks.count("depth", depth)
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(
            "`depth` must be 6m + 4 with m >= 1, such as 10, 16, 22, 28 or 40. "
            f"Received: depth={depth}"
        )
    image = keras.Input(input_shape, name="image")
    x = _convolution(16, 3, name="stem_conv")(image)
    for group, (filters, strides) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
        for block in range(1, (depth - 4) // 6 + 1):
            name = f"group{group}_block{block}"
            x = _pre_activation_block(x, filters * width, strides, name)
            strides = 1
    x = _norm_relu(x, "final_bn", "final_relu")
    y = _logits(x, num_classes, "he_normal")
    return keras.Model(image, y, name=f"wrn-{depth}-{width}")


def resnet50(input_shape=(224, 224, 3), num_classes=1000):
    """Builds ResNet-50 v1.5, which strides in the 3x3 convolutions.

    The network has a 7x7 convolution and a max pooling, both with stride 2,
    followed by four stages of 3, 4, 6 and 3 bottleneck blocks with 256, 512,
    1024 and 2048 output channels. The order of its weights is that of
    Uncertainty Baselines, so `set_weights` takes those of its ResNet-50.

    Args:
        input_shape: (height, width, channels).
        num_classes: The number of float32 logits.

    Example:
        >>> import caltrain_tf as ct
        >>> model = ct.models.resnet50()  # doctest: +SKIP
        >>> model.count_params()  # doctest: +SKIP
        25610152

    Reference:
        He et al., "Deep Residual Learning for Image Recognition", 2015.
    """
    image = keras.Input(input_shape, name="image")
    # Pads both sides equally; "same" would pad by 2 and 3.
    x = layers.ZeroPadding2D(3, name="stem_pad")(image)
    x = _convolution(64, 7, 2, padding="valid", name="stem_conv")(x)
    x = _norm_relu(x, "stem_bn", "stem_relu")
    x = layers.MaxPooling2D(3, 2, padding="same", name="stem_pool")(x)
    stages = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
    for stage, (num_blocks, filters, strides) in enumerate(stages, 1):
        for block in range(1, num_blocks + 1):
            name = f"stage{stage}_block{block}"
            x = _bottleneck_block(x, filters, strides, name)
            strides = 1
    y = _logits(x, num_classes, keras.initializers.RandomNormal(stddev=0.01))
    return keras.Model(image, y, name="resnet-50")


_convolution = functools.partial(
    layers.Conv2D,
    padding="same",
    use_bias=False,
    kernel_initializer="he_normal",
)
_batch_norm = functools.partial(
    layers.BatchNormalization, momentum=0.9, epsilon=1e-5
)


def _norm_relu(x, norm, relu):
    return layers.ReLU(name=relu)(_batch_norm(name=norm)(x))


def _pre_activation_block(x, filters, strides, name):
    y = _norm_relu(x, f"{name}_bn1", f"{name}_relu1")
    y = _convolution(filters, 3, strides, name=f"{name}_conv1")(y)
    y = _norm_relu(y, f"{name}_bn2", f"{name}_relu2")
    y = _convolution(filters, 3, name=f"{name}_conv2")(y)
    if strides != 1 or x.shape[-1] != filters:
        x = _convolution(filters, 1, strides, name=f"{name}_shortcut")(x)
    return layers.Add(name=f"{name}_add")([x, y])


def _bottleneck_block(x, filters, strides, name):
    y = _convolution(filters, 1, name=f"{name}_conv1")(x)
    y = _norm_relu(y, f"{name}_bn1", f"{name}_relu1")
    y = _convolution(filters, 3, strides, name=f"{name}_conv2")(y)
    y = _norm_relu(y, f"{name}_bn2", f"{name}_relu2")
    y = _convolution(4 * filters, 1, name=f"{name}_conv3")(y)
    y = _batch_norm(name=f"{name}_bn3")(y)
    if strides != 1 or x.shape[-1] != 4 * filters:
        x = _convolution(4 * filters, 1, strides, name=f"{name}_shortcut")(x)
        x = _batch_norm(name=f"{name}_shortcut_bn")(x)
    # The order decides the order of the model's weights.
    y = layers.Add(name=f"{name}_add")([y, x])
    return layers.ReLU(name=f"{name}_relu3")(y)


def _logits(x, num_classes, initializer):
    checks.count("num_classes", num_classes)
    # In float32 under any dtype policy: bfloat16 would round confidences close
    # to 1 to the same value before a calibration loss sees them.
    options = {"dtype": "float32", "kernel_initializer": initializer}
    x = layers.GlobalAveragePooling2D(dtype="float32", name="pool")(x)
    return layers.Dense(num_classes, name="logits", **options)(x)
