import itertools
import json
import os

import pytest

from caltrain_tf import losses
from caltrain_tf.experiments import config as room
from caltrain_tf.experiments.config import read_tuned
from caltrain_tf.experiments.study import study_runs
from tests.experiments.configs import load


def test_the_objectives_of_the_paper():
    assert room.expand_objectives(["nll"], "digits") == ["nll"]
    assert len(room.expand_objectives(["paper"], "imagenet")) == 6
    names = room.expand_objectives(["paper"], "cifar100")
    assert len(set(names)) == 18
    pairs = {room.split_objective(name)[:2] for name in names}
    assert pairs == set(
        itertools.product(
            ("nll", "focal", "mse"),
            ("", "mmce", "avuc", "avuc_gs", "sb_ece", "s_avuc"),
        )
    )
    interleaved = [name for name in names if room.split_objective(name)[2]]
    assert interleaved == [
        "nll+sb_ece-interleaved",
        "nll+s_avuc-interleaved",
    ]


def test_names_are_those_of_runs():
    config = load("cifar10")
    for primary, secondary, interleaved in itertools.product(
        losses.PRIMARY, (None, *losses.SECONDARY), (False, True)
    ):
        if secondary is None and interleaved:
            continue
        config.loss.primary = primary
        config.loss.secondary = secondary
        config.interleaved.enabled = interleaved
        parts = room.split_objective(room.objective(config))
        assert parts == (primary, secondary or "", interleaved)
        assert room.objective(config.to_dict()) == room.objective(config)


def test_every_option_of_every_loss_is_a_setting():
    config = load("cifar10")
    for name in (*losses.PRIMARY, *losses.SECONDARY):
        assert config.loss.options[name].to_dict() == losses.options(name)


def test_settings_out_of_range():
    config = load("cifar10")
    room.check(config)
    for key, value, message in (
        ("epochs", -1, "--config.epochs"),
        ("keep_checkpoints", 1, "--config.keep_checkpoints"),
        (
            "accumulate_steps",
            3,
            "--config.accumulate_steps. Received: 512 and 3",
        ),
        ("interleaved.enabled", True, "--secondary, such as sb_ece"),
        ("best", "ts_nl", "'ts_nll'"),
        ("optimizer.l2", -1.0, "--config.optimizer.l2"),
    ):
        wrong = load("cifar10")
        room.override(wrong, {key: value})
        with pytest.raises(ValueError, match=message):
            room.check(wrong)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("foccal+sb_ece", "Did you mean 'focal'"),
        ("nll+s_avc-interleaved", "Did you mean 's_avuc'"),
        ("sb_ece", "must be one of 'nll'"),
        ("nll-interleaved", "--interleaved needs --secondary"),
    ],
)
def test_unknown_objectives(name, message):
    with pytest.raises(ValueError, match=message):
        room.check(room.with_objective(load("cifar10"), name))


def test_runs_have_whole_configurations():
    config = load("cifar10").lock()
    before = config.to_json()
    names = ["nll", "focal+sb_ece", "nll+s_avuc-interleaved"]
    runs = study_runs(config, names, [3, 1], "folder")
    assert config.to_json() == before
    assert [run.name for run in runs] == [
        f"{name} seed {seed}" for seed in (3, 1) for name in names
    ]
    last = runs[-1]
    assert last.folder == os.path.abspath(
        os.path.join("folder", "nll+s_avuc-interleaved", "seed1")
    )
    assert last.commands == (
        ("baselines/cifar/train.py", f"--resume={last.folder}"),
    )
    loss = last.config["loss"]
    assert (loss["primary"], loss["secondary"]) == ("nll", "s_avuc")
    assert last.config["interleaved"]["enabled"] and last.config["seed"] == 1
    assert not runs[0].config["interleaved"]["enabled"]
    assert runs[0].config["loss"]["secondary"] is None
    json.dumps(last.config, allow_nan=False)


def test_tuned_settings_are_those_of_their_objective():
    tuned = {
        "focal+sb_ece": {"loss.options.sb_ece.temperature": 0.03},
        "nll": {"loss.options.avuc.threshold": 1, "optimizer.l2": 1e-3},
        "mse": {"loss.beta": 7.0},
    }
    nll, focal = study_runs(
        load("cifar10").lock(), ["nll", "focal+sb_ece"], [0], "folder", tuned
    )
    temperatures = [
        run.config["loss"]["options"]["sb_ece"]["temperature"]
        for run in (nll, focal)
    ]
    assert temperatures == [0.01, 0.03]
    assert nll.config["optimizer"]["l2"] == 1e-3
    assert nll.config["loss"]["options"]["avuc"]["threshold"] == 1.0
    assert focal.config["optimizer"]["l2"] == 2e-4


@pytest.mark.parametrize(
    ("tuned", "message"),
    [
        ({"nll": {"loss.betta": 1.0}}, "mean 'loss.beta'.*'loss.betta'"),
        ({"nll": {"loss.beta": "high"}}, "config.loss.beta: .* high is of"),
        ({"nll": {"loss": 1.0}}, "must be one of"),
    ],
)
def test_tuned_settings_that_do_not_fit(tuned, message):
    with pytest.raises(ValueError, match=message):
        study_runs(load("cifar10"), ["nll"], [0], "folder", tuned)


def test_nothing_is_run_twice():
    for objectives, seeds in ((["nll", "nll"], [0]), (["nll"], []), ([], [0])):
        with pytest.raises(ValueError, match="at least one, and each only"):
            study_runs(load("cifar10"), objectives, seeds, "folder")


def test_a_file_of_settings(tmp_path):
    tuned = {"focal+sb_ece": {"loss.beta": 0.3}, "nll": {}}
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    assert read_tuned(tmp_path / "tuned.json", "digits") == tuned


def write_best(folder, objective, data="digits", **overrides):
    folder.mkdir(parents=True)
    best = {"objective": objective, "data": data, "overrides": overrides}
    (folder / "best.json").write_text(json.dumps(best))


def test_what_tuning_leaves_behind(tmp_path):
    write_best(tmp_path / "a", "nll", **{"optimizer.l2": 1e-4})
    write_best(tmp_path / "b" / "c", "mse", **{"loss.beta": 3.0})
    expected = {"nll": {"optimizer.l2": 1e-4}, "mse": {"loss.beta": 3.0}}
    assert read_tuned(tmp_path, "digits") == expected
    alone = read_tuned(tmp_path / "a" / "best.json", "digits")
    assert alone == {"nll": {"optimizer.l2": 1e-4}}
    with pytest.raises(ValueError, match="must be of 'cifar10'.*best.json"):
        read_tuned(tmp_path, "cifar10")
    write_best(tmp_path / "d", "nll")
    with pytest.raises(ValueError, match="nll again in .*d/best.json"):
        read_tuned(tmp_path, "digits")
    (tmp_path / "e").mkdir()
    with pytest.raises(ValueError, match="contains best.json"):
        read_tuned(tmp_path / "e", "digits")


def test_files_of_something_else(tmp_path):
    (tmp_path / "tuned.json").write_text("{")
    with pytest.raises(ValueError, match="tuned.json is damaged"):
        read_tuned(tmp_path / "tuned.json", "digits")
