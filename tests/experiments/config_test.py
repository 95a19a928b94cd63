import itertools
import json
import os

import pytest

from caltrain_tf import losses
from caltrain_tf.experiments import config as room
from caltrain_tf.experiments.config import read_tuned, run_name
from tests.experiments.configs import load


def test_the_paper_crosses_eighteen_objectives():
    names = room.cross()
    assert len(set(names)) == 18
    assert set(names) == {
        primary if secondary is None else f"{primary}+{secondary}"
        for primary in ("nll", "focal", "mse")
        for secondary in (None, "mmce", "avuc", "avuc_gs", "sb_ece", "s_avuc")
    }


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
        parts = room.parse_objective(run_name(config))
        assert parts == (primary, secondary, interleaved)
        assert run_name(config.to_dict()) == run_name(config)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("foccal+sb_ece", "focal+sb_ece"),
        ("nll+s_avc-interleaved", "nll+s_avuc-interleaved"),
        ("nll-interleaved", "nll+"),
        ("sb_ece", "sb_ece"),
        ("", ""),
    ],
)
def test_unknown_objectives(name, near):
    with pytest.raises(ValueError, match="Did you mean") as error:
        room.parse_objective(name)
    assert near in str(error.value).split("Did you mean")[1]


def test_unknown_losses():
    with pytest.raises(ValueError, match="primaries.*mean 'focal'"):
        room.cross(["nll", "focl"])
    with pytest.raises(ValueError, match="secondaries.*mean 'none'"):
        room.cross(["nll"], ["non"])


def test_runs_have_whole_configurations():
    config = load("cifar10").lock()
    before = config.to_json()
    names = ["nll", "focal+sb_ece", "nll+s_avuc-interleaved"]
    runs = room.study_runs(config, names, [3, 1], "folder")
    assert config.to_json() == before
    assert [run.name for run in runs] == [
        f"{name} seed {seed}" for seed in (3, 1) for name in names
    ]
    last = runs[-1]
    assert last.folder == os.path.join(
        "folder", "nll+s_avuc-interleaved", "seed1"
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
    nll, focal = room.study_runs(
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
        ({"fokal": {}}, "mean 'focal'"),
        ({"nll": {"loss.betta": 1.0}}, "mean 'loss.beta'.*'loss.betta'"),
        ({"nll": {"loss.beta": "high"}}, "loss.beta='high'"),
        ({"nll": {"loss": 1.0}}, "must be one of"),
        ({"nll": {"loss.primary": "mse"}}, "losses and the seed"),
        ({"nll": {"seed": 3}}, "losses and the seed"),
    ],
)
def test_tuned_settings_that_do_not_fit(tuned, message):
    with pytest.raises(ValueError, match=message):
        room.study_runs(load("cifar10"), ["nll"], [0], "folder", tuned)


def test_nothing_is_run_twice():
    for objectives, seeds in ((["nll", "nll"], [0]), (["nll"], []), ([], [0])):
        with pytest.raises(ValueError, match="at least one, and each only"):
            room.study_runs(load("cifar10"), objectives, seeds, "folder")
    with pytest.raises(ValueError, match="seed=-1"):
        room.study_runs(load("cifar10"), ["nll"], [-1], "folder")


def test_a_file_of_settings(tmp_path):
    tuned = {"focal+sb_ece": {"loss.beta": 0.3}, "nll": {}}
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    assert read_tuned(tmp_path / "tuned.json") == tuned


def write_best(folder, objective, data="digits", **overrides):
    folder.mkdir(parents=True)
    best = {"objective": objective, "data": data, "overrides": overrides}
    (folder / "best.json").write_text(json.dumps(best))


def test_what_tuning_leaves_behind(tmp_path):
    write_best(tmp_path / "a", "nll", **{"optimizer.l2": 1e-4})
    write_best(tmp_path / "b" / "c", "mse", **{"loss.beta": 3.0})
    expected = {"nll": {"optimizer.l2": 1e-4}, "mse": {"loss.beta": 3.0}}
    assert read_tuned(tmp_path, "digits") == expected
    alone = read_tuned(tmp_path / "a" / "best.json")
    assert alone == {"nll": {"optimizer.l2": 1e-4}}
    with pytest.raises(ValueError, match="tuning on 'cifar10'.*'digits'"):
        read_tuned(tmp_path, "cifar10")
    write_best(tmp_path / "d", "nll")
    with pytest.raises(ValueError, match="a/best.json and .*d/best.json of"):
        read_tuned(tmp_path)
    (tmp_path / "e").mkdir()
    with pytest.raises(ValueError, match="hold best.json"):
        read_tuned(tmp_path / "e")


@pytest.mark.parametrize("text", ["[]", '{"nll": 1}', "{"])
def test_files_of_something_else(tmp_path, text):
    (tmp_path / "tuned.json").write_text(text)
    with pytest.raises(ValueError, match="tuned.json must be"):
        read_tuned(tmp_path / "tuned.json")
