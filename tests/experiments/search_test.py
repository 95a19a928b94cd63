import math

import numpy as np
import pytest

from caltrain_tf.experiments import search as room
from tests.experiments.configs import load


def config_of(secondary, primary="focal"):
    config = load("cifar10").lock()
    # Of ten classes, too, and always there.
    config.data.name = "digits"
    config.loss.primary = primary
    config.loss.secondary = secondary
    return config


@pytest.mark.parametrize(
    ("secondary", "names"),
    [
        (None, ["l2"]),
        ("sb_ece", ["temperature", "beta", "l2"]),
        ("sb_marginal_ece", ["temperature", "beta", "l2"]),
        ("s_avuc", ["threshold", "temperature", "beta", "l2"]),
        ("avuc", ["threshold", "beta", "l2"]),
        ("avuc_gs", ["threshold", "beta", "l2"]),
        ("mmce", ["beta", "l2"]),
    ],
)
def test_each_loss_has_its_parameters_in_the_papers_order(secondary, names):
    config = config_of(secondary)
    space = room.search_space(config)
    assert [parameter.name for parameter in space] == names
    for parameter in space:
        own = room.get_path(config, parameter.path)
        assert parameter.default == own
        if secondary not in ("avuc", "avuc_gs"):
            assert parameter.values == config.search[parameter.name]


def test_avuc_has_thresholds_in_nats(tmp_path):
    config = config_of("avuc_gs")
    # Images of your own: the data know how many classes there are.
    path = tmp_path / "images.npz"
    images = np.zeros((70, 8, 8, 3), np.uint8)
    np.savez(path, images=images, labels=np.arange(70) % 7)
    for name, classes in (("digits", 10), (f"npz:{path}", 7)):
        config.data.name = name
        first = room.search_space(config)[0]
        shares = [value / math.log(classes) for value in first.values]
        assert shares == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=1e-4)
        assert first.default is None
    assert room.search_space(config_of("s_avuc"))[0].values[0] == 0.1


def test_any_option_of_either_loss_can_be_searched():
    config = config_of("mmce")
    with config.unlocked():
        config.search.gamma = (1, 2.0, 3.0)
        config.search.width = (0.2, 0.4)
        config.search.num_bins = (5, 15)
        del config.search.beta
    space = room.search_space(config)
    assert [p.path for p in space] == [
        "loss.options.mmce.width",
        "loss.options.focal.gamma",
        "optimizer.l2",
    ]
    assert space[1].values == (1.0, 2.0, 3.0)
    config.loss.secondary = "sb_ece"
    space = room.search_space(config)
    assert [p.name for p in space] == ["temperature", "num_bins", "gamma", "l2"]
    # Of the type that the configuration has.
    assert [type(value) for value in space[1].values] == [int, int]
    with config.unlocked():
        config.search.colour = (1.0,)
    with pytest.raises(ValueError, match="`search` must be.*'colour'"):
        room.search_space(config)
    with config.unlocked():
        del config.search
    with pytest.raises(ValueError, match="`search` must have values"):
        room.search_space(config)


def test_values_that_no_run_can_have_are_an_error_at_once():
    config = config_of("sb_ece")
    config.search.temperature = (0.0, 0.1)
    with pytest.raises(ValueError, match="sb_ece: `temperature` must be"):
        room.search_space(config)
    with pytest.raises(ValueError, match="batch_size` must be.*=0"):
        room.search_space(config_of("sb_ece"), ["batch_size=64,0"])


def test_values_can_be_changed_and_parameters_left_out():
    config = config_of("sb_ece")
    config.search.temperature = ()
    config.search.beta = (1, 0.5, 1.0)
    beta, l2 = room.search_space(config)
    assert beta.values == (1.0, 0.5) and l2.name == "l2"
    config.search.beta = config.search.l2 = ()
    with pytest.raises(ValueError, match="`search` must have.*Received"):
        room.search_space(config)
    config.search.l2 = (1e-4, -1e-4)
    with pytest.raises(ValueError, match="`search.l2` must be.*Received.*-0.0"):
        room.search_space(config)


def test_ranges_of_ratios_are_logarithmic():
    config = config_of("s_avuc")
    config.search.beta = (0.0, 1.0)
    logs = {p.name: p.is_log for p in room.search_space(config)}
    assert logs == {
        "threshold": False,
        "temperature": True,
        "beta": False,
        "l2": True,
    }


def test_a_trials_configuration():
    config = config_of("avuc")
    space = room.search_space(config)
    params = {"threshold": 1.1513, "beta": 3.0, "l2": 1e-5}
    trial = room.with_params(config, space, params)
    assert trial.loss.options.avuc.threshold == 1.1513
    assert (trial.loss.beta, trial.optimizer.l2) == (3.0, 1e-5)
    assert "search" not in trial
    # The one it comes from is as it was.
    assert (config.loss.beta, config.optimizer.l2) == (1.0, 2e-4)
    assert "search" in config
    assert room.trial_name(params) == "threshold=1.1513_beta=3.0_l2=1e-05"


def test_other_settings_follow_the_papers():
    config = config_of("sb_ece")
    others = [
        "batch_size=64,256,64",
        "loss.options.sb_ece.binning=bin",
        "loss.options.sb_ece.root=False",
        "optimizer.learning_rate=0.1,3e-2",
    ]
    space = room.search_space(config, others)
    assert [p.name for p in space[3:]] == [
        "batch_size",
        "binning",
        "root",
        "learning_rate",
    ]
    assert [p.values for p in space[3:]] == [
        (64, 256),
        ("bin",),
        (False,),
        (0.1, 0.03),
    ]
    assert [p.default for p in space[3:]] == [512, "label", True, 0.1]
    assert [p.is_number for p in space[2:]] == [True, True, False, False, True]
    params = dict.fromkeys(("temperature", "beta", "l2"), 0.5)
    params |= {"batch_size": 256, "binning": "bin", "root": False}
    params["learning_rate"] = 0.03
    trial = room.with_params(config, space, params)
    assert (trial.batch_size, trial.optimizer.learning_rate) == (256, 0.03)
    assert trial.loss.options.sb_ece.binning == "bin"
    assert trial.loss.options.sb_ece.root is False


def test_two_of_one_name_have_their_paths():
    space = room.search_space(
        config_of("sb_ece"), ["loss.options.s_avuc.temperature=1"]
    )
    assert space[-1].name == "loss.options.s_avuc.temperature"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batchsize=64", "must be one number or word.*'batch_size'.*batchsize"),
        ("loss=1", "must be one number or word.*Received: 'loss=1'"),
        ("optimizer.decay_epochs=1,2", "must be one number or word"),
        ("batch_size", "'batch_size' must be of type int.*Received"),
        ("batch_size=64,", "'batch_size' must be of type int"),
        ("batch_size=64.5", "'batch_size' must be of type int"),
        ("loss.options.sb_ece.root=no", "must be of type bool"),
        ("loss.options.sb_ece.binning=", "must be of type str"),
        ("loss.options.sb_ece.binning=word", "sb_ece: `binning` must be"),
        ("loss.beta=1,2", "'loss.beta' is tuned by.*`config.search`"),
    ],
)
def test_other_settings_must_be_of_the_configuration(text, message):
    with pytest.raises(ValueError, match=message):
        room.search_space(config_of("sb_ece"), [text])
