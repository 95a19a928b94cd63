import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.experiments import build
from caltrain_tf.experiments.config import check_batch_size
from tests.experiments.configs import CONFIGS, load

NAMES = sorted(path.stem for path in CONFIGS.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_names_real_things(name):
    config = load(name)
    assert config.data.name in ct.data.SPECS
    for primary in ct.losses.PRIMARY:
        for secondary in (None, *ct.losses.SECONDARY):
            config.loss.primary = primary
            config.loss.secondary = secondary
            loss = build.build_loss(config)
            assert loss.from_logits and loss.beta == config.loss.beta
            assert loss.primary.name == primary
            if secondary is not None:
                assert loss.secondary.name == secondary


def test_the_papers_recipe():
    config = load("cifar10")
    assert (config.batch_size, config.epochs) == (512, 200)
    assert config.model == "wrn-28-10"
    assert load("cifar100").data.name == "cifar100"
    imagenet = load("imagenet")
    assert (imagenet.model, imagenet.epochs) == ("resnet-50", 90)


def test_options_reach_the_loss():
    config = load("quickstart")
    config.loss.secondary = "sb_ece"
    config.loss.options.sb_ece.temperature = 0.02
    config.loss.beta = 0.5
    assert build.build_loss(config).secondary.temperature == 0.02
    alone = build.build_loss(config, ["secondary"])
    assert alone.primary is None and alone.beta == 0.5


def test_a_mistyped_key_is_an_error():
    config = load("quickstart").lock()
    with pytest.raises(AttributeError, match="beta"):
        config.loss.betta = 1.0


def test_the_trainer_follows_the_configuration():
    config = load("quickstart")
    config.precision = "mixed_bfloat16"
    config.batch_size = 64
    config.optimizer.learning_rate = 0.1
    config.optimizer.warmup_epochs = 1
    config.optimizer.decay_epochs = (10, 13)
    config.optimizer.decay_ratio = 0.2
    trainer = build.build_trainer(
        config, tf.distribute.get_strategy(), build.build_data(config), 100
    )
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
    dataset = build.build_data(config)
    # A network of anyone's with these weights.
    plain = ct.models.get(
        config.model, num_classes=10, input_shape=dataset.image_shape
    )
    path = str(tmp_path / "model.keras")
    plain.save(path)
    config.init_from = path
    strategy = tf.distribute.get_strategy()
    trainer = build.build_trainer(config, strategy, dataset, 100)
    for one, other in zip(
        plain.get_weights(), trainer.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    keras.Sequential([keras.Input([2]), keras.layers.Dense(3)]).save(path)
    with pytest.raises(
        ValueError, match=r"has 2; .* \(2, 3\) instead of \(3, "
    ):
        build.build_trainer(config, strategy, dataset, 100)
    config.init_from = str(tmp_path / "none.keras")
    with pytest.raises(ValueError, match="cannot be loaded.*none.keras"):
        build.build_trainer(config, strategy, dataset, 100)


def test_replicas_share_a_batch(two_replicas):
    config = load("quickstart")
    check_batch_size(config, two_replicas)
    config.batch_size = 33
    with pytest.raises(ValueError, match="batch_size .* replicas, 2. .*: 33"):
        check_batch_size(config, two_replicas)
