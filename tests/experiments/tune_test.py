import concurrent.futures
import csv
import io
import json
import math
import os
import pathlib
import signal

import ml_collections
import numpy as np
import pytest

from caltrain_tf import files
from caltrain_tf.experiments import statistics
from caltrain_tf.experiments import tune as room
from caltrain_tf.experiments.pool import Outcome
from caltrain_tf.experiments.search import trial_name
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
    return {"accuracy": 0.9 + 0.03 * accuracy, "ece": 0.1 * ece}


class CheapPool:
    """Does runs at once, in this process, and notes which."""

    def __init__(self, function=measure, stop_at=None, fail=(), slots=1):
        self.slots = slots
        self.names = []
        self._waiting = []
        self._function = function
        self._stop_at = stop_at
        self._fail = fail

    def submit(self, run):
        future = concurrent.futures.Future()
        if len(self.names) == self._stop_at:
            # It and those that follow run until they are stopped.
            if not self._waiting:
                os.kill(os.getpid(), signal.SIGINT)
            self._waiting.append(future)
            return future
        self.names.append(os.path.basename(run.folder))
        failure = ""
        folder = pathlib.Path(run.folder)
        files.write_text(folder / "config.json", json.dumps(run.config))
        if len(self.names) in self._fail:
            failure = "exit code 1"
        else:
            config = ml_collections.ConfigDict(run.config)
            results = json.dumps(self._function(config))
            files.write_text(folder / "results.json", results)
        files.write_text(folder / "log.txt", "--- done after 1.5 s\n")
        future.set_result(Outcome(failure, "no memory", 1.5))
        return future

    def running(self):
        return []

    def stop(self):
        for future in self._waiting:
            future.set_exception(concurrent.futures.CancelledError())


@pytest.fixture(autouse=True)
def cheap_measures(monkeypatch):
    """Takes what a cheap run has in `results.json` for its measures."""
    monkeypatch.setattr(
        room, "measure_trial", lambda folder: read(folder, "results.json")
    )


def read(folder, name):
    return json.loads(pathlib.Path(folder, name).read_text())


def quiet_tune(config, folder, pool, **options):
    return room.tune(config, folder, pool, stream=io.StringIO(), **options)


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
    tuning = quiet_tune(config, tmp_path, pool)
    best, results = naive(config, seed)
    assert tuning.trials[tuning.best].params == best
    names = [trial_name(dict(params)) for params in results]
    # Each once, in this order, and none twice.
    assert pool.names == list(tuning.trials) == names
    for trial, result in zip(
        tuning.trials.values(), results.values(), strict=True
    ):
        assert trial.result == result and trial.seconds == 1.5
    # Three of the first parameter, and two more of each that follows.
    stages = {"s_avuc": 4, "sb_ece": 3, "mmce": 2}[secondary]
    assert len(names) == 2 * stages + 1


@pytest.mark.parametrize("strategy", ["sequential", "joint"])
def test_a_stopped_tuning_goes_on_where_it_was(tmp_path, strategy):
    options = {"strategy": strategy, "trials": 12}
    config = make_config()
    whole = quiet_tune(config, tmp_path / "whole", CheapPool(), **options)
    # A joint search is at random first, and then it is not.
    stops = {"sequential": (0, 2, 8), "joint": (11,)}[strategy]
    for stop in stops:
        folder = tmp_path / f"stopped{stop}"
        first, second = CheapPool(stop_at=stop), CheapPool()
        with pytest.raises(KeyboardInterrupt):
            quiet_tune(config, folder, first, **options)
        tuning = quiet_tune(config, folder, second, **options)
        assert first.names + second.names == list(whole.trials)
        assert (tuning.best, list(tuning.trials)) == (
            whole.best,
            list(whole.trials),
        )
    never = CheapPool(stop_at=0)
    again = quiet_tune(config, tmp_path / "whole", never, **options)
    assert again.best == whole.best


def test_the_most_trials(tmp_path):
    config = make_config("mmce")
    pool = CheapPool()
    whole = list(quiet_tune(config, tmp_path / "whole", CheapPool()).trials)
    for most in (1, 3, 4):
        # More may be asked for later.
        tuning = quiet_tune(config, tmp_path / "some", pool, trials=most)
        assert pool.names == list(tuning.trials) == whole[:most]
    assert list(quiet_tune(config, tmp_path / "some", pool).trials) == whole
    with pytest.raises(ValueError, match="`trials` must be.*Received"):
        quiet_tune(config, tmp_path / "some", pool, trials=0)


@pytest.mark.parametrize("strategy", ["sequential", "joint"])
def test_more_values_in_the_same_folder(tmp_path, strategy):
    options = {"strategy": strategy, "trials": 6}
    config = make_config("mmce", beta=(1.0, 2.0))
    first = quiet_tune(config, tmp_path, CheapPool(), **options)
    pool = CheapPool()
    config = make_config("mmce", beta=(1.0, 0.0, 30.0))
    tuning = quiet_tune(config, tmp_path, pool, **options)
    assert not set(pool.names) & set(first.trials)
    if strategy == "sequential":
        assert tuning.trials[tuning.best].params == naive(config, 0)[0]
    else:
        # Trials that are there count, where they are of the new ranges.
        assert set(first.trials) == set(tuning.trials)
        assert not pool.names


def test_another_configuration_is_refused(tmp_path):
    quiet_tune(make_config(), tmp_path, CheapPool(), trials=1)
    other = make_config()
    other.epochs = 17
    with pytest.raises(ValueError, match="epochs=12 there, 17 here.*output_d"):
        quiet_tune(other, tmp_path, CheapPool())
    with pytest.raises(ValueError, match="'joint'.*Received.*'jont'"):
        quiet_tune(make_config(), tmp_path, CheapPool(), strategy="jont")


@pytest.mark.parametrize("strategy", ["sequential", "joint"])
def test_failed_trials_are_left_out_and_tried_again(tmp_path, strategy):
    options = {"strategy": strategy, "trials": 5}
    config = make_config("mmce")
    tuning = quiet_tune(config, tmp_path, CheapPool(fail=[2]), **options)
    failed = list(tuning.trials)[1]
    assert tuning.trials[failed].reason == "exit code 1: no memory"
    rows = room.tuning_rows(tuning).set_index("trial")
    assert rows["verdict"][failed] == "failed: exit code 1: no memory"
    assert np.isnan(rows["accuracy"][failed])
    assert "- failed: exit code 1" in " ".join(
        room.tuning_table(tuning).split()
    )
    again = CheapPool()
    tuning = quiet_tune(config, tmp_path, again, **options)
    assert again.names[0] == failed and tuning.trials[failed].result
    never = CheapPool(stop_at=0)
    assert quiet_tune(config, tmp_path, never, **options).best == tuning.best
    with pytest.raises(RuntimeError, match="All trials failed.*no memory"):
        pool = CheapPool(fail=range(99))
        quiet_tune(config, tmp_path / "bad", pool, **options)


def test_results_that_are_not_finite_are_failures(tmp_path):
    def sometimes(config):
        result = measure(config)
        return result | {"ece": math.nan} if config.loss.beta == 3 else result

    tuning = quiet_tune(make_config("mmce"), tmp_path, CheapPool(sometimes))
    reasons = [t.reason for t in tuning.trials.values() if not t.result]
    assert reasons and all("not finite: " in reason for reason in reasons)


def test_a_joint_search(tmp_path):
    config = make_config()
    options = {"strategy": "joint", "trials": 12}
    tuning = quiet_tune(config, tmp_path / "one", CheapPool(), **options)
    assert len(tuning.trials) == 12
    for trial in tuning.trials.values():
        for name, value in trial.params.items():
            assert SEARCH[name][0] <= value <= SEARCH[name][-1]
            assert value == float(f"{value:.4g}")
    rows = [
        {"name": name, **trial.result} for name, trial in tuning.trials.items()
    ]
    assert tuning.best == statistics.best_within_accuracy(rows)["name"]
    config.seed = 1
    # Several at a time are different ones.
    other = quiet_tune(config, tmp_path / "two", CheapPool(slots=5), **options)
    assert len(other.trials) == 12
    assert set(other.trials).isdisjoint(tuning.trials)
    with pytest.raises(ValueError, match="`output_dir` must be a local.*gs:"):
        quiet_tune(config, "gs://bucket/folder", CheapPool(), **options)


def test_a_joint_search_knows_the_runs_of_another_search(tmp_path):
    config = make_config("mmce")
    first = quiet_tune(config, tmp_path, CheapPool())
    pool = CheapPool()
    options = {"strategy": "joint", "trials": len(first.trials) + 2}
    tuning = quiet_tune(config, tmp_path, pool, **options)
    assert set(first.trials) < set(tuning.trials)
    assert len(pool.names) == 2
    # Without its database it still knows them all.
    (tmp_path / "study.db").unlink()
    never = CheapPool(stop_at=0)
    assert quiet_tune(config, tmp_path, never, **options).best == tuning.best


def test_a_joint_search_between_equal_extremes_ends(tmp_path):
    single = {name: (values[0],) for name, values in SEARCH.items()}
    tuning = quiet_tune(
        make_config(**single), tmp_path, CheapPool(), strategy="joint"
    )
    assert len(tuning.trials) == 1


def test_the_joint_search_learns(tmp_path):
    def function(config):
        # Best at a beta of 1 and an l2 of 3e-4.
        distance = abs(math.log10(config.loss.beta)) + abs(
            math.log10(config.optimizer.l2 / 3e-4)
        )
        return {"accuracy": 0.9, "ece": 0.01 + 0.1 * distance}

    pool = CheapPool(function)
    options = {"strategy": "joint", "trials": 24}
    tuning = quiet_tune(make_config("mmce"), tmp_path, pool, **options)
    eces = [trial.result["ece"] for trial in tuning.trials.values()]
    assert np.mean(eces[15:]) < np.mean(eces[:10])


def test_the_files_of_a_tuning(tmp_path):
    config = make_config()
    tuning = quiet_tune(config, tmp_path, CheapPool())
    best = room.write_tuning(config, tuning, tmp_path)
    assert best == read(tmp_path, "best.json")
    assert list(best) == [
        *("objective", "data", "trial", "overrides", "flags"),
        *("calibration", "config"),
    ]
    params = tuning.trials[tuning.best].params
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
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("trial", "threshold", "temperature", "beta", "l2"),
        *("accuracy", "ece", "seconds", "verdict"),
    ]
    assert [row["trial"] for row in rows] == list(tuning.trials)
    most = max(float(row["accuracy"]) for row in rows)
    lowest = best["calibration"]["ece"]
    verdicts = set()
    for row in rows:
        lost = most - float(row["accuracy"])
        if row["trial"] == tuning.best:
            expected = "best"
        elif lost >= 0.01:
            expected = f"gives up {100 * lost:.2f} points of accuracy"
        else:
            more = 100 * (float(row["ece"]) - lowest)
            assert more >= 0
            expected = f"ECE higher by {more:.2f} points"
        assert row["verdict"] == expected
        verdicts.add(expected[:3])
    assert verdicts == {"bes", "giv", "ECE"}


@pytest.mark.parametrize("strategy", ["sequential", "joint"])
def test_other_settings_keep_their_types(tmp_path, strategy):
    config = make_config("sb_ece", temperature=(), beta=(), l2=())
    seen = []

    def function(config):
        options = config.loss.options.sb_ece
        seen.append((config.batch_size, options.binning, options.root))
        # More bins are better, `bin` is best.
        ece = 1 / options.num_bins - 0.01 * (options.binning == "bin")
        return {"accuracy": 0.9, "ece": ece}

    others = [
        "batch_size=16,32",
        "loss.options.sb_ece.num_bins=5,15,30",
        "loss.options.sb_ece.binning=label,bin",
        "loss.options.sb_ece.root=True,False",
    ]
    options = {"strategy": strategy, "others": others, "trials": 15}
    for _ in range(2):
        tuning = quiet_tune(config, tmp_path, CheapPool(function), **options)
    # The second time everything is known.
    assert len(seen) == len(tuning.trials)
    for batch_size, binning, root in seen:
        assert type(batch_size) is int and type(root) is bool
        assert binning in ("label", "bin")
    best = tuning.trials[tuning.best].params
    if strategy == "sequential":
        assert (best["num_bins"], best["binning"]) == (30, "bin")
        assert len(seen) == 2 + 2 + 1 + 1
    else:
        assert best["binning"] == "bin" and len(seen) == 15
    head = room.tuning_table(tuning).splitlines()[0].split()
    assert head == [
        *("batch_size", "num_bins", "binning", "root"),
        *("accuracy", "ECE", "verdict"),
    ]
    saved = room.write_tuning(config, tuning, tmp_path)
    assert saved["overrides"]["loss.options.sb_ece.binning"] == "bin"
