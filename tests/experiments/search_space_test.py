import math

import pytest

from caltrain_tf.experiments import search_space as room
from tests.experiments.configs import load


def config_of(secondary, primary="focal", name="cifar10"):
    config = load(name).lock()
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


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_avuc_has_thresholds_in_nats(name):
    first = room.search_space(config_of("avuc", name=name))[0]
    classes = {"cifar10": 10, "cifar100": 100}[name]
    shares = [value / math.log(classes) for value in first.values]
    assert shares == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=1e-4)
    assert first.default is None
    assert room.search_space(config_of("s_avuc"))[0].values[0] == 0.1


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
    assert room.as_flags(space, params) == (
        "--config.loss.options.avuc.threshold=1.1513 --config.loss.beta=3.0 "
        "--config.optimizer.l2=1e-05"
    )
    assert room.trial_name(params) == "threshold=1.1513_beta=3.0_l2=1e-05"


def test_a_fingerprint_is_of_what_is_not_tuned():
    def mark(change=None):
        config = config_of("sb_ece")
        if change:
            config.update_from_flattened_dict(change)
        return room.fingerprint(config, room.search_space(config))

    assert mark({"loss.beta": 2.0, "search.l2": (1e-3,)}) == mark()
    assert mark({"optimizer.l2": 0.1}) == mark()
    for change in (
        {"seed": 1},
        {"loss.primary": "nll"},
        {"loss.options.sb_ece.num_bins": 5},
        {"loss.options.mmce.width": 0.2},
        {"optimizer.decay_epochs": (1, 2, 3)},
    ):
        assert mark(change) != mark()


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
    assert room.as_flags(space[3:], params) == (
        "--config.batch_size=256 --config.loss.options.sb_ece.binning=bin "
        "--config.loss.options.sb_ece.root=False "
        "--config.optimizer.learning_rate=0.03"
    )
    assert "batch_size" not in room.fingerprint(config, space)


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
        ("loss.beta=1,2", "'loss.beta' is tuned by.*`config.search`"),
    ],
)
def test_other_settings_must_be_of_the_configuration(text, message):
    with pytest.raises(ValueError, match=message):
        room.search_space(config_of("sb_ece"), [text])
