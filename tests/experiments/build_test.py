import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.experiments import build
from tests.experiments.configs import CONFIGS, load

NAMES = sorted(path.stem for path in CONFIGS.glob("*.py"))


def make_trainer(config, steps=100, strategy=None, data=None):
    strategy = strategy or tf.distribute.get_strategy()
    data = data or build.data(config)
    with strategy.scope():
        model = build.model(config, data, config.init_from)
        optimizer = build.optimizer(config, {"dataset_steps": steps})
    return build.trainer(config, model, build.loss(config), optimizer, strategy)


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_names_real_things(name):
    config = load(name)
    assert config.data.name in ct.data.SPECS or name == "embeddings"
    for primary in ct.losses.PRIMARY:
        for secondary in (None, *ct.losses.SECONDARY):
            config.loss.primary = primary
            config.loss.secondary = secondary
            loss = build.loss(config)
            assert loss.from_logits and loss.beta == config.loss.beta
            assert loss.primary.name == primary
            if secondary is not None:
                assert loss.secondary.name == secondary


@pytest.mark.parametrize("rescales", [False, True])
def test_networks_of_files_that_rescale_get_pixels(rescales, tmp_path):
    config, layers = load("quickstart"), keras.layers
    first = [layers.Rescaling(1 / 255)] if rescales else []
    last = [layers.Flatten(), layers.Dense(10, name="logits")]
    model = keras.Sequential([keras.Input((32, 32, 3)), *first, *last])
    model.save(tmp_path / "network.keras")
    config.model = str(tmp_path / "network.keras")
    data = build.data(config)
    network = build.model(config, data)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    inputs = pixels.astype("float32")
    if not rescales:
        rescaling = data.rescaling
        inputs = inputs * np.float32(rescaling["scale"]) + rescaling["offset"]
    np.testing.assert_allclose(
        network(pixels), model(inputs), rtol=1e-4, atol=1e-4
    )
    # Once more, as `--config.model=<run>/model.keras`.
    network.save(tmp_path / "model.keras")
    config.model = str(tmp_path / "model.keras")
    again = build.model(config, data)
    np.testing.assert_array_equal(again(pixels), network(pixels))


def test_the_papers_recipe():
    config = load("cifar10")
    assert (config.batch_size, config.epochs) == (512, 200)
    assert config.model == "wrn-28-10"
    assert load("cifar100").data.name == "cifar100"
    imagenet = load("imagenet")
    assert (imagenet.model, imagenet.epochs) == ("resnet-50", 90)
    assert imagenet.batch_size == 512


def test_options_reach_the_loss():
    config = load("quickstart").lock()
    config.loss.secondary = "sb_ece"
    config.loss.options.sb_ece.temperature = 0.02
    config.loss.options.sb_ece.lower = "chance"
    config.loss.beta = 0.5
    secondary = build.loss(config).secondary
    assert (secondary.temperature, secondary.lower) == (0.02, "chance")
    alone = build.loss(config, ["secondary"])
    assert alone.primary is None and alone.beta == 0.5
    # The held-out part has the secondary loss.
    config.interleaved.enabled = True
    assert build.loss(config).secondary is None
    config.loss.secondary = "mbls"
    config.loss.options.mbls.margin = "wide"
    with pytest.raises(ValueError, match="`margin` must be .*wide"):
        build.loss(config, ["secondary"])


def test_the_trainer_follows_the_configuration():
    config = load("quickstart")
    config.precision = "mixed_bfloat16"
    config.batch_size = 64
    config.optimizer.learning_rate = 0.1
    config.optimizer.warmup_epochs = 1
    config.optimizer.decay_epochs = (10, 13)
    config.optimizer.decay_ratio = 0.2
    trainer = make_trainer(config)
    schedule = trainer.optimizer._learning_rate
    # The rate of a batch of 128 is 0.1, and this batch is of 64.
    assert float(schedule(100)) == pytest.approx(0.05)
    assert float(schedule(1200)) == pytest.approx(0.01)
    assert trainer.l2 == 2e-4
    _, normalize, network = trainer.model.layers
    assert normalize.compute_dtype == "float32"
    assert network.layers[1].compute_dtype == "bfloat16"
    assert trainer.model.input.dtype == "uint8"
    assert trainer.model.output.dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"


def test_training_starts_from_a_file(tmp_path):
    config = load("quickstart")
    config.model = "mlp-8"
    dataset = build.data(config)
    # A network of anyone's with these weights.
    plain = ct.models.get(
        config.model, num_classes=10, input_shape=dataset.image_shape
    )
    path = str(tmp_path / "model.keras")
    plain.save(path)
    config.init_from = path
    trainer = make_trainer(config, data=dataset)
    for one, other in zip(
        plain.get_weights(), trainer.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    keras.Sequential([keras.Input([2]), keras.layers.Dense(3)]).save(path)
    with pytest.raises(ValueError, match="set_weights"):
        make_trainer(config, data=dataset)
    config.init_from = str(tmp_path / "none.keras")
    with pytest.raises(ValueError, match="cannot be loaded.*none.keras"):
        make_trainer(config, data=dataset)


def test_replicas_share_a_batch(two_replicas):
    config = load("quickstart")
    config.model = "mlp-8"
    config.batch_size = 33
    with pytest.raises(ValueError, match="multiple of .* replicas, 2. .*: 33"):
        make_trainer(config, strategy=two_replicas)


@pytest.mark.parametrize(
    "precision, accumulate", [("float32", 3), ("mixed_float16", 1)]
)
def test_precision_and_accumulated_gradients(precision, accumulate):
    config = load("quickstart")
    config.model = "mlp-8"
    config.precision = precision
    config.data.train_split = "train[:96]"
    config.batch_size, config.accumulate_steps = 48, accumulate
    config.optimizer.warmup_epochs = 0
    config.optimizer.decay_epochs = ()
    config.optimizer.clip_norm = None
    config.steps_per_execution = 1
    data = build.data(config)
    batches = build.training_input(config, data)
    assert batches["dataset_steps"] == 2 * accumulate
    trainer = make_trainer(config, batches["dataset_steps"], data=data)
    before = trainer.model.get_weights()
    rows = trainer.fit(**batches, epochs=1, verbose=False)
    assert np.isfinite(rows[0]["train/loss"])
    if accumulate > 1:
        # The weights change after three micro-batches, for the second time.
        assert int(trainer.optimizer.iterations) == 2
    after = trainer.model.get_weights()
    assert any(
        (one != two).any() for one, two in zip(before, after, strict=True)
    )
