import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct

EPSILON = 1e-5


def convolutions(model):
    return [x for x in model.layers if isinstance(x, keras.layers.Conv2D)]


def batch_norms(model):
    kind = keras.layers.BatchNormalization
    return [x for x in model.layers if type(x) is kind]


def multiply_adds(model):
    """Of one image, from kernels and the shapes of what layers return."""
    total = 0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            places = np.prod(layer.output.shape[1:-1], dtype=int)
            total += int(places) * int(np.prod(layer.kernel.shape))
    return total


@pytest.fixture(scope="module")
def wrn_28_10():
    return ct.models.wide_resnet(28, 10)


def test_wrn_28_10_has_the_published_sizes(wrn_28_10):
    assert wrn_28_10.count_params() == 36_497_146
    moving = sum(
        int(np.prod(weight.shape))
        for weight in wrn_28_10.non_trainable_variables
    )
    # What the authors of WRN give as 36.5M has no moving statistics.
    assert 36_497_146 - moving == 36_479_194
    # Their table gives 5.2 billion multiply-adds.
    assert round(multiply_adds(wrn_28_10) / 1e9, 1) == 5.2


def test_wrn_28_10_has_the_described_layers(wrn_28_10):
    # n counts the convolutions, shortcuts among them.
    assert len(convolutions(wrn_28_10)) == 28
    norms = batch_norms(wrn_28_10)
    assert len(norms) == 2 * 12 + 1
    assert {(x.momentum, x.epsilon) for x in norms} == {(0.9, EPSILON)}
    shortcuts = [x for x in convolutions(wrn_28_10) if x.kernel_size == (1, 1)]
    assert [x.filters for x in shortcuts] == [160, 320, 640]
    assert [x.strides[0] for x in shortcuts] == [1, 2, 2]
    strided = [x for x in convolutions(wrn_28_10) if x.strides != (1, 1)]
    assert sorted(x.name for x in strided) == [
        "group2_block1_conv1",
        "group2_block1_shortcut",
        "group3_block1_conv1",
        "group3_block1_shortcut",
    ]
    ends = [f"group{group}_block4_add" for group in (1, 2, 3)]
    assert [wrn_28_10.get_layer(name).output.shape[1:] for name in ends] == [
        (32, 32, 160),
        (16, 16, 320),
        (8, 8, 640),
    ]
    assert not wrn_28_10.losses


def test_no_shortcut_convolution_where_the_shape_stays():
    model = ct.models.wide_resnet(10, 1)
    names = [x.name for x in convolutions(model) if x.kernel_size == (1, 1)]
    assert names == ["group2_block1_shortcut", "group3_block1_shortcut"]


def test_kernels_are_he_initialised():
    keras.utils.set_random_seed(0)
    model = ct.models.wide_resnet(10, 4)
    for layer in convolutions(model):
        kernel = np.asarray(layer.kernel)
        expected = np.sqrt(2 / np.prod(kernel.shape[:3]))
        # Chance moves the smallest, of 432 values, by 4%; the seed is fixed.
        assert np.std(kernel) == pytest.approx(expected, rel=0.1)


def test_forward_pass_equals_plain_tensorflow():
    keras.utils.set_random_seed(0)
    model = ct.models.wide_resnet(10, 2, input_shape=(16, 16, 3))
    rng = np.random.default_rng(0)
    for layer in batch_norms(model):
        size = layer.gamma.shape[0]
        layer.set_weights([rng.uniform(0.5, 1.5, size) for _ in range(4)])
    weights = {layer.name: layer.get_weights() for layer in model.layers}
    images = rng.normal(size=(3, 16, 16, 3)).astype("float32")

    def conv(x, name, strides=1):
        return tf.nn.conv2d(x, weights[name][0], strides, "SAME")

    def relu_norm(x, name):
        gamma, beta, mean, variance = weights[name]
        scaled = (x - mean) / np.sqrt(variance + EPSILON)
        return tf.nn.relu(scaled * gamma + beta)

    x = conv(images, "stem_conv")
    for group, strides in ((1, 1), (2, 2), (3, 2)):
        block = f"group{group}_block1"
        y = conv(relu_norm(x, f"{block}_bn1"), f"{block}_conv1", strides)
        y = conv(relu_norm(y, f"{block}_bn2"), f"{block}_conv2")
        x = conv(x, f"{block}_shortcut", strides) + y
    x = tf.reduce_mean(relu_norm(x, "final_bn"), axis=(1, 2))
    expected = x @ weights["logits"][0] + weights["logits"][1]
    np.testing.assert_allclose(
        model(images, training=False), expected, rtol=1e-4, atol=1e-5
    )


def test_all_variables_have_gradients():
    model = ct.models.wide_resnet(10, 1)
    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3))
    with tf.GradientTape() as tape:
        logits = model(images.astype("float32"), training=True)
        loss = tf.reduce_sum(logits**2)
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert np.isfinite(gradient).all() and np.any(gradient)


def test_logits_are_float32_under_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = ct.models.wide_resnet(10, 1)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.get_layer("group1_block1_conv1").compute_dtype == "bfloat16"
    assert model.output.dtype == "float32"
    assert {x.dtype for x in model.variables} == {"float32"}


def test_bad_sizes_are_errors():
    for depth in (4, 27, 28.0, "28"):
        with pytest.raises(ValueError, match="`depth` must .*Received: depth"):
            ct.models.wide_resnet(depth, 1)
    # Keras names the others.
    for options in (
        {"width": 0},
        {"num_classes": 0},
        {"input_shape": (32, 32)},
    ):
        with pytest.raises(ValueError):
            ct.models.wide_resnet(10, **{"width": 1, **options})


@pytest.fixture(scope="module")
def resnet():
    """ResNet-50 in mixed precision, by its name."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return ct.models.get("resnet-50")
    finally:
        keras.config.set_dtype_policy(before)


def test_resnet50_has_the_published_sizes(resnet):
    assert resnet.count_params() == 25_610_152
    trainable = sum(
        int(np.prod(weight.shape)) for weight in resnet.trainable_variables
    )
    # As torchvision counts its ResNet-50.
    assert trainable == 25_557_032
    # torchvision gives 4.089 billion; the original ResNet-50 has 3.8.
    assert round(multiply_adds(resnet) / 1e9, 3) == 4.089


def test_resnet50_has_the_described_layers(resnet):
    norms = batch_norms(resnet)
    # 49 and 4 shortcuts; with the classifier, 50 layers on the main path.
    assert len(convolutions(resnet)) == len(norms) == 53
    assert {(x.momentum, x.epsilon) for x in norms} == {(0.9, 1e-5)}
    strided = {x.name: x for x in convolutions(resnet) if x.strides != (1, 1)}
    assert sorted(strided) == [
        "stage2_block1_conv2",
        "stage2_block1_shortcut",
        "stage3_block1_conv2",
        "stage3_block1_shortcut",
        "stage4_block1_conv2",
        "stage4_block1_shortcut",
        "stem_conv",
    ]
    assert all(
        layer.kernel_size == (3, 3)
        for name, layer in strided.items()
        if name.endswith("conv2")
    )
    ends = ["stem_conv", "stem_pool", "stage1_block3_add", "stage2_block4_add"]
    ends += ["stage3_block6_add", "stage4_block3_add"]
    assert [resnet.get_layer(name).output.shape[1:] for name in ends] == [
        (112, 112, 64),
        (56, 56, 64),
        (56, 56, 256),
        (28, 28, 512),
        (14, 14, 1024),
        (7, 7, 2048),
    ]
    assert resnet.output_shape == (None, 1000)
    assert not resnet.losses


def test_resnet50_returns_float32_under_mixed_precision(resnet):
    assert resnet.get_layer("stage1_block1_conv1").compute_dtype == "bfloat16"
    assert {x.dtype for x in resnet.variables} == {"float32"}
    assert resnet.output.dtype == "float32"


def resnet50_of_uncertainty_baselines(input_shape, num_classes):
    """Its `resnet50_deterministic`, with the layers in the order it has."""
    layers = keras.layers

    def conv(x, filters, size, **options):
        return layers.Conv2D(filters, size, use_bias=False, **options)(x)

    def norm(x):
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    def relu(x):
        return layers.Activation("relu")(x)

    def block(inputs, filters, strides):
        x = relu(norm(conv(inputs, filters, 1)))
        x = relu(norm(conv(x, filters, 3, strides=strides, padding="same")))
        x = norm(conv(x, 4 * filters, 1))
        shortcut = inputs
        if x.shape != shortcut.shape:
            shortcut = norm(conv(shortcut, 4 * filters, 1, strides=strides))
        return relu(layers.add([x, shortcut]))

    inputs = layers.Input(input_shape)
    x = conv(layers.ZeroPadding2D(3)(inputs), 64, 7, strides=2)
    x = layers.MaxPooling2D(3, 2, padding="same")(relu(norm(x)))
    for filters, num_blocks, strides in (
        (64, 3, 1),
        (128, 4, 2),
        (256, 6, 2),
        (512, 3, 2),
    ):
        for number in range(num_blocks):
            x = block(x, filters, strides if number == 0 else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(num_classes)(x))


def test_resnet50_takes_the_weights_of_uncertainty_baselines():
    keras.utils.set_random_seed(0)
    theirs = resnet50_of_uncertainty_baselines((64, 64, 3), 7)
    rng = np.random.default_rng(0)
    for layer in batch_norms(theirs):
        size = layer.gamma.shape[0]
        layer.set_weights([rng.uniform(0.5, 1.5, size) for _ in range(4)])
    ours = ct.models.resnet50((64, 64, 3), 7)
    ours.set_weights(theirs.get_weights())
    images = rng.normal(size=(2, 64, 64, 3)).astype("float32")
    expected = np.asarray(theirs(images, training=False))
    # The same operations in the same order; a shortcut in the place of the
    # last convolution changes the logits by more than their size.
    np.testing.assert_allclose(
        ours(images, training=False),
        expected,
        atol=1e-5 * np.abs(expected).max(),
    )


def test_saved_networks_load_without_this_package(wrn_28_10, resnet):
    # `tests/saved_models_test.py` loads one on every backend.
    for layer in (*wrn_28_10.layers, *resnet.layers):
        assert type(layer).__module__.startswith("keras.")
