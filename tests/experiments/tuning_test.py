import csv
import itertools
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.experiments import search_space
from caltrain_tf.experiments import tuning_report
from caltrain_tf.experiments.trials import run_trial
from caltrain_tf.experiments.tuning import tune
from tests.baselines.scripts import ROOT
from tests.baselines.scripts import run_here
from tests.experiments.cheap_tuning import SEARCH
from tests.experiments.cheap_tuning import make_config
from tests.experiments.cheap_tuning import measure
from tests.experiments.cheap_tuning import work
from tests.experiments.configs import TINY_FLAGS
from tests.experiments.configs import tiny


class Runs:
    """Trials that cost nothing, and what was asked of them."""

    def __init__(self, seed=0, stop_at=None, fail=()):
        self.folders = []
        self.seed = seed
        self.stop_at = stop_at
        self.fail = fail

    def __call__(self, config, folder):
        if len(self.folders) == self.stop_at:
            raise KeyboardInterrupt
        self.folders.append(os.path.basename(folder))
        if len(self.folders) in self.fail:
            raise RuntimeError("no memory")
        return measure(config, self.seed)


def quiet_tune(config, folder, run, **options):
    options = {"say": lambda line: None, "poll_seconds": 0.01, **options}
    return tune(config, folder, run, **options)


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
    runs = Runs(seed)
    tuning = quiet_tune(config, tmp_path, runs)
    best, results = naive(config, seed)
    assert tuning.outcomes[tuning.best].params == best
    names = [search_space.trial_name(dict(params)) for params in results]
    # Each once, in this order, and none twice.
    assert runs.folders == list(tuning.outcomes) == names
    for outcome, result in zip(
        tuning.outcomes.values(), results.values(), strict=True
    ):
        assert outcome.result == result
    # Three of the first parameter, and two more of each that follows.
    stages = {"s_avuc": 4, "sb_ece": 3, "mmce": 2}[secondary]
    assert len(names) == 2 * stages + 1


def test_a_stopped_tuning_goes_on_where_it_was(tmp_path):
    config = make_config("mmce")
    whole = quiet_tune(config, tmp_path / "whole", Runs())
    count = len(whole.outcomes)
    for stop in (0, 2, count - 1):
        folder = tmp_path / f"stopped{stop}"
        first, second = Runs(stop_at=stop), Runs()
        with pytest.raises(KeyboardInterrupt):
            quiet_tune(config, folder, first)
        tuning = quiet_tune(config, folder, second)
        assert first.folders + second.folders == list(whole.outcomes)
        assert (tuning.best, list(tuning.outcomes)) == (
            whole.best,
            list(whole.outcomes),
        )
    never = Runs(stop_at=0)
    assert quiet_tune(config, tmp_path / "whole", never).best == whole.best


def test_the_most_trials(tmp_path):
    config = make_config("mmce")
    runs = Runs()
    whole = list(quiet_tune(config, tmp_path / "whole", Runs()).outcomes)
    for most in (1, 3, 4):
        # More may be asked for later.
        tuning = quiet_tune(config, tmp_path / "some", runs, trials=most)
        assert runs.folders == list(tuning.outcomes) == whole[:most]
    assert list(quiet_tune(config, tmp_path / "some", runs).outcomes) == whole
    with pytest.raises(ValueError, match="`trials` must be.*Received"):
        quiet_tune(config, tmp_path / "some", runs, trials=0)


def test_more_values_on_the_same_study(tmp_path):
    quiet_tune(make_config(beta=(1.0,)), tmp_path, Runs())
    runs = Runs()
    tuning = quiet_tune(make_config(beta=(1.0, 0.0, 30.0)), tmp_path, runs)
    assert all("beta=0.0" in f or "beta=30.0" in f for f in runs.folders[:2])
    best, _ = naive(make_config(beta=(1.0, 0.0, 30.0)), 0)
    assert tuning.outcomes[tuning.best].params == best


def test_another_configuration_is_refused(tmp_path):
    quiet_tune(make_config(), tmp_path, Runs(), trials=1)
    other = make_config()
    other.epochs = 17
    with pytest.raises(
        ValueError, match="epochs=16 there, 17 here.*study_name"
    ):
        quiet_tune(other, tmp_path, Runs())
    quiet_tune(other, tmp_path, Runs(), trials=1, study_name="other")
    # Another objective is another study of the same storage.
    quiet_tune(make_config("mmce"), tmp_path, Runs(), trials=1)
    with pytest.raises(ValueError, match="'joint'.*Received.*'jont'"):
        quiet_tune(make_config(), tmp_path, Runs(), strategy="jont")


def test_failed_trials_are_reported_and_left_out(tmp_path, capsys):
    config = make_config("mmce")
    whole = quiet_tune(config, tmp_path / "whole", Runs())
    said = []
    tuning = quiet_tune(config, tmp_path, Runs(fail=(2,)), say=said.append)
    failed = list(whole.outcomes)[1]
    assert tuning.outcomes[failed].reason == "RuntimeError: no memory"
    assert f"failed: {failed}: RuntimeError: no memory" in said
    rows = {row["trial"]: row for row in tuning_report.tuning_rows(tuning)}
    assert rows[failed]["verdict"] == "failed: RuntimeError: no memory"
    assert rows[failed]["accuracy"] is None
    assert "failed: RuntimeError" in tuning_report.tuning_table(tuning)
    again = quiet_tune(config, tmp_path, Runs(), retry_failed=True)
    assert list(again.outcomes) == list(whole.outcomes)
    with pytest.raises(RuntimeError, match="All trials failed.*no memory"):
        quiet_tune(config, tmp_path / "bad", Runs(fail=range(99)))
    assert "no memory" in capsys.readouterr().err


def test_progress_is_told(tmp_path):
    said = []
    quiet_tune(make_config(), tmp_path, Runs(), say=said.append)
    starts = [line for line in said if line.startswith("trial")]
    assert starts[0] == (
        "trial 1 of 9: threshold=0.2, temperature=0.1, beta=1.0, l2=0.0002"
    )
    assert [line.split(":")[0] for line in starts] == [
        f"trial {k} of 9" for k in range(1, 10)
    ]
    assert all(line.endswith("left)") for line in starts[1:])
    assert said[1].startswith("  accuracy 9")


def test_a_joint_search(tmp_path):
    config = make_config()
    tuning = quiet_tune(
        config, tmp_path / "whole", Runs(), strategy="joint", trials=12
    )
    names = list(tuning.outcomes)
    assert len(set(names)) == 12
    for outcome in tuning.outcomes.values():
        for name, value in outcome.params.items():
            assert SEARCH[name][0] <= value <= SEARCH[name][-1]
    rows = [
        {"name": name, **outcome.result}
        for name, outcome in tuning.outcomes.items()
    ]
    assert tuning.best == ct.evaluation.best_within_accuracy(rows)["name"]
    # Stopped while random, and while not: it proposes the same.
    for stop in (3, 11):
        folder = tmp_path / f"stopped{stop}"
        with pytest.raises(KeyboardInterrupt):
            quiet_tune(
                config, folder, Runs(stop_at=stop), strategy="joint", trials=12
            )
        again = quiet_tune(config, folder, Runs(), strategy="joint", trials=12)
        assert list(again.outcomes) == names
    config.seed = 1
    other = quiet_tune(
        config, tmp_path / "seed", Runs(), strategy="joint", trials=2
    )
    assert set(other.outcomes).isdisjoint(names)


def test_a_joint_search_between_equal_extremes_ends(tmp_path):
    single = {name: (values[0],) for name, values in SEARCH.items()}
    config = make_config(**single)
    tuning = quiet_tune(config, tmp_path, Runs(), strategy="joint")
    assert len(tuning.outcomes) == 1


def test_the_joint_search_learns(tmp_path):
    config = make_config("mmce")

    def run(trial, folder):
        # Best at a beta of 1 and an l2 of 3e-4.
        distance = abs(math.log10(trial.loss.beta)) + abs(
            math.log10(trial.optimizer.l2 / 3e-4)
        )
        return {"accuracy": 0.9, "ece": 0.01 + 0.1 * distance}

    tuning = quiet_tune(config, tmp_path, run, strategy="joint", trials=30)
    eces = [outcome.result["ece"] for outcome in tuning.outcomes.values()]
    assert np.mean(eces[15:]) < np.mean(eces[:10])


def test_the_files_of_a_tuning(tmp_path):
    config = make_config()
    tuning = quiet_tune(config, tmp_path, Runs())
    best = tuning_report.write_tuning(config, tuning, tmp_path)
    assert best == json.loads((tmp_path / "best.json").read_text())
    params = tuning.outcomes[tuning.best].params
    assert (
        best["overrides"]["loss.options.s_avuc.threshold"]
        == (params["threshold"])
    )
    assert best["config"]["optimizer"]["l2"] == params["l2"]
    assert best["config"]["loss"]["beta"] == params["beta"]
    assert "search" not in best["config"]
    assert f"--config.loss.beta={params['beta']}" in best["flags"]
    with open(tmp_path / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == list(tuning.outcomes)
    most = max(float(row["accuracy"]) for row in rows)
    lowest = float(best["calibration"]["ece"])
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
    assert not [f for f in os.listdir(tmp_path) if f.startswith(".")]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_trial_is_a_run_measured_on_the_calibration_split(
    tmp_path, monkeypatch
):
    config = tiny()
    config.epochs = 1
    del config.search
    result = run_trial(config, tmp_path)
    logits, labels = ct.evaluation.load_predictions(
        tmp_path / "predictions" / "calibration.npz"
    )
    measured = ct.evaluation.measure(logits, labels)
    assert result == {key: measured[key] for key in ("accuracy", "ece", "nll")}
    # A finished one is not trained again, and another one is no match for it.
    monkeypatch.setattr(
        "caltrain_tf.experiments.trials.train", lambda *_: pytest.fail("again")
    )
    assert run_trial(config, tmp_path) == result
    config.loss.beta = 7.0
    with pytest.raises(ValueError, match="loss.beta=1.0 there, 7.0 here"):
        run_trial(config, tmp_path)
    config.loss.beta = 1.0
    said = []

    def release(seconds):
        assert len(said) == 1 and "waiting" in said[0]
        holder.__exit__()

    monkeypatch.setattr("time.sleep", release)
    with ct.training.RunFolder(tmp_path, config.to_dict()) as holder:
        assert run_trial(config, tmp_path, say=said.append) == result


def start(*command):
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_two_workers_take_trials_from_one_study(tmp_path, capsys):
    other = start("-m", "tests.experiments.cheap_tuning", str(tmp_path))
    # This process is the second worker, once the first one is at work.
    first_line = other.stdout.readline()
    work(str(tmp_path))
    output, errors = other.communicate()
    assert other.returncode == 0, errors
    best, results = naive(make_config(), 0)
    names = [search_space.trial_name(dict(params)) for params in results]
    outputs = (first_line + output, capsys.readouterr().out)
    said = [output.splitlines() for output in outputs]
    # Both know all trials and the best, and neither did all.
    summary = f"{search_space.trial_name(best)} of {' '.join(names)}"
    assert [lines[-1] for lines in said] == [summary, summary]
    done = [
        {line.split()[1] for line in lines if line.startswith("ran")}
        for lines in said
    ]
    assert done[0].isdisjoint(done[1]) and done[0] | done[1] == set(names)
    assert min(map(len, done)) > 0
    # A trial of a later parameter begins when all those before are done.
    times = {
        line.split()[1]: tuple(map(float, line.split()[2:]))
        for lines in said
        for line in lines
        if line.startswith("ran")
    }
    stages = [names[:3], names[3:5], names[5:7], names[7:]]
    for before, after in itertools.pairwise(stages):
        last_end = max(times[name][1] for name in before)
        assert last_end < min(times[name][0] for name in after)


def test_two_workers_of_the_script(tmp_path):
    settings = {**TINY_FLAGS, "epochs": 1, "optimizer.decay_epochs": ()}
    arguments = [
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        "--primary=focal",
        "--secondary=sb_ece",
        f"--output_dir={tmp_path}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
        "--config.search.temperature=()",
        "--config.search.beta=(0.3, 1.0)",
        "--config.search.l2=()",
    ]
    other = start("baselines/tune.py", *arguments)
    # The other one says which trial it takes; the second one is left.
    first_line = other.stdout.readline()
    done = run_here("tune.py", *arguments)
    output, errors = other.communicate()
    assert other.returncode == 0, errors
    assert done.returncode == 0, done.stderr
    outputs = (first_line + output, done.stdout)
    # The same summary, whoever did what.
    summaries = [output.partition("\nfocal+sb_ece on")[2] for output in outputs]
    assert summaries[0] == summaries[1] and "Best: --config" in summaries[0]
    starts = [
        line.partition(": ")[2].split(" (")[0]
        for output in outputs
        for line in output.splitlines()
        if line.startswith("trial ")
    ]
    names = [", ".join(n.split("_")) for n in os.listdir(tmp_path / "trials")]
    assert sorted(starts) == sorted(names) and len(names) == 2
    best = json.loads((tmp_path / "best.json").read_text())
    run = tmp_path / "trials" / best["trial"]
    assert json.loads((run / "config.json").read_text()) == best["config"]
    assert "results.json" in os.listdir(run)


@pytest.mark.parametrize("strategy", ["sequential", "joint"])
def test_other_settings_keep_their_types(tmp_path, strategy):
    config = make_config("sb_ece", temperature=(), beta=(), l2=())
    seen = []

    def run(config, folder):
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
    lines = []
    for _ in range(2):
        tuning = quiet_tune(
            config,
            tmp_path,
            run,
            strategy=strategy,
            others=others,
            trials=15,
            say=lines.append,
        )
    assert ", num_bins=" in lines[0] and ", root=" in lines[0]
    # The second time everything is known.
    assert len(seen) == len(tuning.outcomes)
    for batch_size, binning, root in seen:
        assert type(batch_size) is int and type(root) is bool
        assert binning in ("label", "bin")
    best = tuning.outcomes[tuning.best].params
    if strategy == "sequential":
        assert (best["num_bins"], best["binning"]) == (30, "bin")
        assert len(seen) == 2 + 2 + 1 + 1
    else:
        assert best["binning"] == "bin" and len(seen) == 15
    table = tuning_report.tuning_table(tuning)
    assert "num_bins     binning        root" in table.splitlines()[0]
    tuning_report.write_tuning(config, tuning, tmp_path)
    saved = json.loads((tmp_path / "best.json").read_text())
    key = "loss.options.sb_ece.binning"
    assert saved["overrides"][key] == "bin"
