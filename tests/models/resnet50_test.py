import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct


@pytest.fixture(scope="module")
def model():
    """The only ResNet-50 that the tests build, so it has to show everything."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return ct.models.get("resnet-50")
    finally:
        keras.config.set_dtype_policy(before)


def test_it_has_the_published_sizes(model):
    assert model.count_params() == 25_610_152
    trainable = sum(
        int(np.prod(weight.shape)) for weight in model.trainable_variables
    )
    # As torchvision counts its ResNet-50.
    assert trainable == 25_557_032


def test_its_multiply_adds_are_those_of_version_1_5(model):
    total = 0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            places = np.prod(layer.output.shape[1:-1], dtype=int)
            total += int(places) * int(np.prod(layer.kernel.shape))
    # torchvision gives 4.089 billion; the original ResNet-50 has 3.8.
    assert round(total / 1e9, 3) == 4.089


def test_it_has_the_described_layers(model):
    convolutions = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Conv2D)
    ]
    norms = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    # 49 and 4 shortcuts; with the classifier, 50 layers on the main path.
    assert len(convolutions) == len(norms) == 53
    assert {(x.momentum, x.epsilon) for x in norms} == {(0.9, 1e-5)}
    strided = {x.name: x for x in convolutions if x.strides != (1, 1)}
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
    assert [model.get_layer(name).output.shape[1:] for name in ends] == [
        (112, 112, 64),
        (56, 56, 64),
        (56, 56, 256),
        (28, 28, 512),
        (14, 14, 1024),
        (7, 7, 2048),
    ]
    assert model.output_shape == (None, 1000)
    assert not model.losses


def test_logits_are_float32_under_mixed_precision(model):
    assert model.get_layer("stage1_block1_conv1").compute_dtype == "bfloat16"
    assert {x.dtype for x in model.variables} == {"float32"}
    assert model.output.dtype == "float32"


def test_all_variables_have_gradients(model):
    # Not every machine convolves bfloat16.
    for layer in model.layers:
        layer.dtype_policy = "float32"
    rng = np.random.default_rng(0)
    images = rng.normal(size=(1, 224, 224, 3)).astype("float32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(images, training=True) ** 2)
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert np.isfinite(gradient).all() and np.any(gradient)


def test_bad_sizes_are_errors():
    with pytest.raises(ValueError, match="`input_shape` .*Received"):
        ct.models.resnet50(input_shape=(224, 224))
    with pytest.raises(ValueError, match="`num_classes` .*Received"):
        ct.models.resnet50(num_classes=-1)
