import concurrent.futures
import csv
import json
import math
import os
import pathlib

import ml_collections
import numpy as np
import pytest

from caltrain_tf import files
from caltrain_tf.experiments import tune as room
from caltrain_tf.experiments.pool import Outcome
from tests.experiments.configs import load

SEARCH = {
    "threshold": (0.2, 0.5, 0.8),
    "temperature": (0.01, 0.1, 1.0),
    "beta": (0.3, 1.0, 3.0),
    "l2": (1e-4, 2e-4, 1e-3),
}


def make_config(secondary="s_avuc", **search):
    config = load("quickstart").lock()
    config.loss.primary = "focal"
    config.loss.secondary = secondary
    config.loss.beta = 1.0
    config.loss.options.s_avuc.update(threshold=0.5, temperature=0.1)
    config.search = {**SEARCH, **search}
    return config


def measure(config, seed=0):
    """An accuracy and an ECE that depend on every parameter."""
    options = config.loss.options[config.loss.secondary]
    numbers = [config.loss.beta, config.optimizer.l2]
    numbers += [options.get(key) or 0 for key in ("threshold", "temperature")]
    entropy = [seed, *(round(1e6 * number) for number in numbers)]
    accuracy, ece = np.random.default_rng(entropy).random(2)
    return {"accuracy": 0.9 + 0.03 * accuracy, "ece": 0.1 * ece, "nll": 1.0}


class CheapPool:
    """Does runs at once, in this process, and notes which."""

    def __init__(self, function=measure, stop_at=None, fail=()):
        self.names = []
        self._function = function
        self._stop_at = stop_at
        self._fail = fail

    def submit(self, run):
        future = concurrent.futures.Future()
        if len(self.names) == self._stop_at:
            raise KeyboardInterrupt
        self.names.append(os.path.basename(run.folder))
        failure = ""
        folder = pathlib.Path(run.folder)
        if len(self.names) in self._fail:
            failure = "exit code 1"
        else:
            config = ml_collections.ConfigDict(run.config)
            results = json.dumps(self._function(config))
            files.write_text(folder / "results.json", results)
        future.set_result(Outcome(failure, "no memory", 1.5))
        return future


@pytest.fixture(autouse=True)
def cheap_measures(monkeypatch):
    """Takes what a cheap run has in `results.json` for its measures."""
    monkeypatch.setattr(
        room, "measure_trial", lambda folder: read(folder, "results.json")
    )


def read(folder, name):
    return json.loads(pathlib.Path(folder, name).read_text())


def quiet_tune(config, folder, pool):
    """The rows of a tuning, and the parameters of its best trial."""
    space = room.search_space(config)
    (rows,) = room.tune([config], [space], [folder], pool)
    return rows, room.best_trial(rows)["params"]


def names(rows):
    return [row["trial"] for row in rows]


def naive(config, seed):
    """The paper's procedure, written down."""
    secondary = config.loss.secondary
    all_results = {}

    def setting(params):
        new = config.copy_and_resolve_references()
        for name, value in params.items():
            if name in ("threshold", "temperature"):
                new.loss.options[secondary][name] = value
            elif name == "beta":
                new.loss.beta = value
            else:
                new.optimizer.l2 = value
        return measure(new, seed)

    own = config.loss.options[secondary]
    best = {key: own[key] for key in ("threshold", "temperature") if key in own}
    best |= {"beta": config.loss.beta, "l2": config.optimizer.l2}
    for name in list(best):
        for value in config.search[name]:
            params = {**best, name: value}
            all_results[tuple(params.items())] = setting(params)
        most = max(result["accuracy"] for result in all_results.values())
        lowest = math.inf
        for params, result in all_results.items():
            if most - result["accuracy"] < 0.01 and result["ece"] < lowest:
                lowest, best = result["ece"], dict(params)
    return best, all_results


@pytest.mark.parametrize(
    ("secondary", "seed"),
    [("s_avuc", 0), ("s_avuc", 1), ("sb_ece", 2), ("mmce", 0)],
)
def test_one_parameter_after_the_other(tmp_path, seed, secondary):
    config = make_config(secondary)
    pool = CheapPool(lambda config: measure(config, seed))
    rows, best = quiet_tune(config, tmp_path, pool)
    expected, results = naive(config, seed)
    assert best == expected
    # Each once, in this order, and none twice.
    trials = [room.trial_name(dict(params)) for params in results]
    assert pool.names == names(rows) == trials
    for row, result in zip(rows, results.values(), strict=True):
        assert {key: row[key] for key in result} == result
    # Three of the first parameter, and two more of each that follows.
    stages = {"s_avuc": 4, "sb_ece": 3, "mmce": 2}[secondary]
    assert len(rows) == 2 * stages + 1


def test_a_stopped_tuning_goes_on_where_it_was(tmp_path):
    config = make_config()
    whole, best = quiet_tune(config, tmp_path / "whole", CheapPool())
    for stop in (0, 2, 8):
        folder = tmp_path / f"stopped{stop}"
        first, second = CheapPool(stop_at=stop), CheapPool()
        with pytest.raises(KeyboardInterrupt):
            quiet_tune(config, folder, first)
        rows, again = quiet_tune(config, folder, second)
        assert first.names + second.names == names(whole) == names(rows)
        assert again == best
    never = CheapPool(stop_at=0)
    assert quiet_tune(config, tmp_path / "whole", never)[1] == best


def test_several_objectives_share_the_pool(tmp_path):
    configs = [make_config(name) for name in ("mmce", "s_avuc", "sb_ece")]
    folders = [tmp_path / c.loss.secondary for c in configs]
    pool = CheapPool()
    spaces = list(map(room.search_space, configs))
    results = room.tune(configs, spaces, folders, pool)
    for config, rows in zip(configs, results, strict=True):
        assert room.best_trial(rows)["params"] == naive(config, 0)[0]
    # The first parameters of all of them come first.
    assert pool.names[:9] == [
        trial for rows in results for trial in names(rows[:3])
    ]


def test_an_objective_that_fails_does_not_stop_the_others(tmp_path):
    configs = [make_config(name) for name in ("mmce", "s_avuc")]
    spaces = list(map(room.search_space, configs))
    folders = [tmp_path / c.loss.secondary for c in configs]
    pool = CheapPool(fail=[1, 2, 3])
    failed, rows = room.tune(configs, spaces, folders, pool)
    assert len(failed) == 3 and all(row["failure"] for row in failed)
    assert room.best_trial(rows)["params"] == naive(configs[1], 0)[0]
    with pytest.raises(ValueError, match="All trials failed.*no memory"):
        room.write_tuning(configs[0], spaces[0], failed, folders[0])


def test_another_configuration_is_refused(tmp_path):
    quiet_tune(make_config(), tmp_path, CheapPool())
    other = make_config()
    other.epochs = 17
    with pytest.raises(ValueError, match="epochs=12 there, 17 here.*output_d"):
        quiet_tune(other, tmp_path, CheapPool())


def test_failed_trials_are_left_out_and_tried_again(tmp_path):
    config = make_config("mmce")
    rows, _ = quiet_tune(config, tmp_path, CheapPool(fail=[2]))
    failed = rows[1]
    assert failed["failure"] == "exit code 1: no memory"
    table = room.trials_table(rows)
    assert table["verdict"][1] == "exit code 1: no memory"
    assert np.isnan(table["accuracy"][1])
    again = CheapPool()
    rows, best = quiet_tune(config, tmp_path, again)
    assert again.names[0] == failed["trial"] and not rows[1]["failure"]
    never = CheapPool(stop_at=0)
    assert quiet_tune(config, tmp_path, never)[1] == best
    with pytest.raises(ValueError, match="All trials failed.*no memory"):
        pool = CheapPool(fail=range(99))
        quiet_tune(config, tmp_path / "bad", pool)


def test_the_files_of_a_tuning(tmp_path):
    config = make_config()
    space = room.search_space(config)
    rows, _ = quiet_tune(config, tmp_path, CheapPool())
    best = room.write_tuning(config, space, rows, tmp_path)
    assert json.loads(json.dumps(best)) == read(tmp_path, "best.json")
    row = room.best_trial(rows)
    params = row["params"]
    assert best["overrides"] == {
        "loss.options.s_avuc.threshold": params["threshold"],
        "loss.options.s_avuc.temperature": params["temperature"],
        "loss.beta": params["beta"],
        "optimizer.l2": params["l2"],
    }
    assert best["config"]["optimizer"]["l2"] == params["l2"]
    assert "search" not in best["config"]
    assert f" --config.loss.beta={params['beta']} " in best["flags"]
    with open(tmp_path / "trials.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == [
        *("trial", "threshold", "temperature", "beta", "l2"),
        *("accuracy", "ece", "verdict"),
    ]
    assert [line["trial"] for line in table] == names(rows)
    most = max(row["accuracy"] for row in rows)
    verdicts = set()
    for line in table:
        lost = most - float(line["accuracy"])
        if line["trial"] == row["trial"]:
            expected = "best"
        elif lost >= 0.01:
            expected = "accuracy too low"
        else:
            expected = ""
            assert float(line["ece"]) >= row["ece"]
        assert line["verdict"] == expected
        verdicts.add(expected)
    assert verdicts == {"best", "accuracy too low", ""}


def test_options_keep_their_types(tmp_path):
    config = make_config(
        "sb_ece",
        **{"temperature": (), "beta": (), "l2": ()},
        num_bins=(5, 15, 30),
        binning=("label", "bin"),
        root=(True, False),
    )
    seen = []

    def function(config):
        options = config.loss.options.sb_ece
        seen.append((options.num_bins, options.binning, options.root))
        # More bins are better, `bin` is best.
        ece = 1 / options.num_bins - 0.01 * (options.binning == "bin")
        return {"accuracy": 0.9, "ece": ece, "nll": 1.0}

    for _ in range(2):
        rows, best = quiet_tune(config, tmp_path, CheapPool(function))
    # The second time everything is known.
    assert len(seen) == len(rows) == 3 + 1 + 1
    for num_bins, binning, root in seen:
        assert type(num_bins) is int and type(root) is bool
        assert binning in ("label", "bin")
    assert (best["num_bins"], best["binning"]) == (30, "bin")


@pytest.mark.parametrize(
    ("secondary", "expected"),
    [
        (None, ["l2"]),
        ("sb_ece", ["temperature", "beta", "l2"]),
        ("s_avuc", ["threshold", "temperature", "beta", "l2"]),
        ("avuc_gs", ["threshold", "beta", "l2"]),
        ("mmce", ["beta", "l2"]),
    ],
)
def test_each_loss_has_its_parameters_in_the_papers_order(secondary, expected):
    config = make_config(secondary)
    space = room.search_space(config)
    assert [parameter.name for parameter in space] == expected
    for parameter in space:
        if secondary == "avuc_gs" and parameter.name == "threshold":
            # Entropies of ten classes, in nats.
            shares = [value / math.log(10) for value in parameter.values]
            assert shares == pytest.approx(SEARCH["threshold"], abs=1e-4)
        else:
            assert parameter.values == SEARCH[parameter.name]
    # MMCE is a square, and needs more.
    config.search = load("cifar10").search
    beta = {p.name: p.values for p in room.search_space(config)}.get("beta")
    assert secondary is None or max(beta) == (
        300 if secondary == "mmce" else 10
    )


def test_values_to_search():
    config = make_config("sb_ece", temperature=(), l2=(), beta=(1, 0.5, 1.0))
    (beta,) = room.search_space(config)
    assert beta.values == (1.0, 0.5)
    config.search.beta = ()
    with pytest.raises(ValueError, match="--config.search must have values"):
        room.search_space(config)
    with pytest.raises(ValueError, match="--config.optimizer.l2"):
        room.search_space(make_config(l2=(-1.0,)))
    with pytest.raises(ValueError, match="--config.search.*temprature"):
        room.search_space(make_config(temprature=(0.1,)))
