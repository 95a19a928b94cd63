import copy

from caltrain_tf.report.settings import hyperparameters
from caltrain_tf.report.settings import setting_names
from tests.experiments.configs import load

BASE = load("cifar10").to_dict()


def changed(**changes):
    config = copy.deepcopy(BASE)
    for key, value in changes.items():
        *path, last = key.split("__")
        part = config
        for name in path:
            part = part[name]
        part[last] = value
    return config


def test_objectives_share_a_setting():
    names = setting_names(
        [
            BASE,
            changed(seed=3),
            changed(loss__primary="focal", loss__beta=3.0),
            changed(loss__options__sb_ece__temperature=0.1),
            changed(interleaved__enabled=True),
            changed(optimizer__l2=1e-5),
            changed(search={}, evaluate_every=1, keep_checkpoints=1),
        ]
    )
    assert set(names) == {"cifar10 wrn-28-10 200 epochs batch 512"}


def test_everything_else_is_another_setting():
    configs = [
        BASE,
        changed(optimizer__learning_rate=0.2),
        changed(optimizer__momentum=0.8),
        changed(epochs=100),
        changed(precision="mixed_bfloat16"),
        changed(data__train_split="train[:10%]"),
    ]
    names = setting_names(configs)
    assert len(set(names)) == len(configs)
    assert "optimizer.learning_rate 0.2" in names[1]
    assert "optimizer.learning_rate 0.1" in names[2]
    assert names[3] == "cifar10 wrn-28-10 100 epochs batch 512"
    assert names[5] == "cifar10 wrn-28-10 train[:10%] 200 epochs batch 512"


def test_a_key_that_one_configuration_lacks():
    other = copy.deepcopy(BASE)
    del other["precision"]
    names = setting_names([BASE, other])
    assert names[0].endswith(', precision "float32"')
    assert names[1].endswith(", precision absent")


def test_hyperparameters_of_an_interleaved_run():
    config = changed(loss__secondary="s_avuc", interleaved__enabled=True)
    assert hyperparameters(config) == (
        "nll.label_smoothing 0.0, s_avuc.temperature 0.1, s_avuc.threshold "
        "0.5, beta 1.0, held out 0.1, l2 0.0002"
    )
