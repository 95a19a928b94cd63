import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct


@pytest.fixture(scope="module")
def model():
    return ct.models.resnet50()


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


def test_it_takes_a_training_step():
    model = ct.models.resnet50(input_shape=(64, 64, 3), num_classes=10)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, 64, 64, 3)).astype("float32")
    model.compile(
        keras.optimizers.SGD(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    before = np.asarray(model.get_layer("stem_conv").kernel)
    loss = model.train_on_batch(images, np.array([1, 2]))
    assert np.isfinite(loss).all()
    after = np.asarray(model.get_layer("stem_conv").kernel)
    assert np.isfinite(after).all() and (before != after).any()


def test_logits_are_float32_under_mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = ct.models.resnet50(input_shape=(32, 32, 3), num_classes=3)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.get_layer("stage1_block1_conv1").compute_dtype == "bfloat16"
    assert model(np.zeros((1, 32, 32, 3), "float32")).dtype == tf.float32


def test_bad_sizes_are_errors():
    with pytest.raises(ValueError, match="`input_shape` .*Received"):
        ct.models.resnet50(input_shape=(224, 224))
    with pytest.raises(ValueError, match="`num_classes` .*Received"):
        ct.models.resnet50(num_classes=-1)
