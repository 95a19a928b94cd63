import json
import shutil

import numpy as np
import pandas as pd
import pytest

import caltrain_tf as ct
from caltrain_tf import files
from caltrain_tf.experiments import collect, prediction_files, report
from caltrain_tf.experiments.collect import (
    _setting_names,
    write_rows,
)
from tests.experiments import finished_runs as fake_runs

SETTING = "digits wrn-10-1 16 epochs batch 64"


def test_every_run_is_a_result_row(runs, rows):
    results = rows.results
    assert list(zip(results["objective"], results["seed"], strict=True)) == [
        *(("nll", 0), ("nll", 1), ("nll+mmce", 0), ("nll+mmce", 1))
    ]
    row = results.iloc[2]
    path = runs / "nll+mmce" / "seed0" / "results.json"
    for key, value in json.loads(path.read_text()).items():
        assert row[key] == value
    assert row["setting"] == SETTING
    assert (row["primary"], row["secondary"]) == ("nll", "mmce")
    assert not row["interleaved"]
    assert (row["test_examples"], row["shift_examples"]) == (600, 200)


def test_reliability_is_that_of_a_naive_loop(runs, rows):
    path = runs / "nll" / "seed0" / "predictions" / "test.npz"
    logits, labels = prediction_files.load(path)
    powers = np.exp(logits.astype(float))
    probs = powers / powers.sum(axis=1, keepdims=True)
    top, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
    here = rows.reliability.query("objective == 'nll' and seed == 0")
    assert len(here) == 15 and set(here["calibrator"]) == {"none"}
    for row in here.itertuples():
        inside = np.floor(top * 15).clip(0, 14) == row.bin
        assert row.count == inside.sum()
        if row.count:
            assert row.confidence == pytest.approx(top[inside].mean())
            assert row.accuracy == pytest.approx(correct[inside].mean())
        else:
            assert np.isnan([row.confidence, row.accuracy]).all()


def test_calibrators_only_where_asked_for(runs):
    folder = runs / "nll" / "seed0"
    assert "ece_dirichlet" not in collect.collect(folder).results
    asked = collect.collect(folder, ["dirichlet"]).results.iloc[0]
    load = prediction_files.load
    calibrator = ct.posthoc.DirichletCalibration().fit(
        *load(folder / "predictions" / "calibration.npz")
    )
    logits, labels = load(folder / "predictions" / "test.npz")
    assert asked["ece_dirichlet"] == ct.metrics.calibration_error(
        calibrator.transform(logits), labels, from_logits=True
    )
    with pytest.raises(ValueError, match="--calibrators.*'auto'.*platt"):
        collect.collect(folder, ["platt"])


def test_the_order_is_that_of_the_paper(tmp_path):
    objectives = (
        ("focal", "a_new_loss", False),
        ("focal", "sb_ece", False),
        ("mse", None, False),
        ("nll", "s_avuc", True),
        ("focal", None, False),
        ("nll", "s_avuc", False),
        ("nll", None, False),
    )
    fake_runs.write_runs(tmp_path, objectives, seeds=(0,))
    collected = collect.collect(tmp_path)
    expected = [
        *("nll", "nll+s_avuc", "nll+s_avuc-interleaved"),
        *("focal", "focal+sb_ece", "focal+a_new_loss", "mse"),
    ]
    assert list(collected.results["objective"]) == expected
    assert list(collected.shift["objective"].unique()) == expected


def test_rows_and_runs_come_together(runs, rows, tmp_path):
    folder = tmp_path / "rows"
    write_rows(rows, folder)
    more = tmp_path / "more"
    fake_runs.write_run(more, "focal", None, False, 0)
    collected = collect.collect([folder, more])
    assert list(collected.results["objective"]) == [
        *("nll", "nll", "nll+mmce", "nll+mmce", "focal")
    ]
    # To the last bit.
    for part, again in zip(rows, collect.collect(folder), strict=True):
        pd.testing.assert_frame_equal(
            part, again, check_dtype=False, check_exact=True
        )
    pd.testing.assert_frame_equal(
        collect.collect([runs, runs / "nll"]).results, rows.results
    )
    with pytest.raises(ValueError, match="there once.*twice: .* nll, seed 0"):
        collect.collect([folder, runs])


def test_what_is_not_whole_is_left_out_and_named(runs, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    config = (folder / "nll" / "seed0" / "config.json").read_text()
    for name, results in {
        "a": None,
        "b": '{"accuracy": 0.',
    }.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(config)
        if results is not None:
            (folder / name / "results.json").write_text(results)
    (folder / "nll/seed0/predictions/test.npz").write_bytes(b"half")
    shutil.rmtree(folder / "nll/seed1/predictions")
    (folder / "nll/seed1/shift.csv").unlink()
    with pytest.warns(UserWarning) as warned:
        collected = collect.collect(folder)
    assert len(collected.results) == 3
    assert pd.isna(collected.results["test_examples"][0])
    reasons = dict(
        str(warning.message).removeprefix(f"{folder}/").split(" is left out: ")
        for warning in warned
    )
    assert "No such file" in reasons["a"] and "results.json" in reasons["a"]
    assert "Expecting" in reasons["b"]
    assert "must be an .npz file" in reasons["nll/seed0"]
    assert len(reasons) == 3
    assert set(collected.reliability["objective"]) == {"nll+mmce"}


def test_rows_that_are_cut_off_are_not_believed(runs, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    path = folder / "nll/seed1/shift.csv"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(UserWarning, match="seed1 is left out: .*shift.csv is"):
        collected = collect.collect(folder)
    collect.write_rows(collected, tmp_path / "rows")
    path = tmp_path / "rows" / "results.csv"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="results.csv is cut off"):
        collect.collect(tmp_path / "rows")


def test_runs_may_be_in_a_bucket(runs, rows):
    bucket = files.as_path("ram://report/runs")
    for path in runs.rglob("*.*"):
        files.write_bytes(bucket / path.relative_to(runs), path.read_bytes())
    collected = collect.collect(bucket)
    pd.testing.assert_frame_equal(collected.results, rows.results)
    one = collect.make_rows(results=collected.results[:1])
    report.write_report(one, "ram://report/out/page.html")
    again = collect.collect("ram://report/out/page_rows")
    pd.testing.assert_frame_equal(again.results, one.results, check_dtype=False)


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="Pass folders of runs.*Received"):
        collect.collect(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with (
        pytest.warns(UserWarning, match="No such file.*results.json"),
        pytest.raises(ValueError, match="No finished run. Received: "),
    ):
        collect.collect(tmp_path)


def test_objectives_share_a_setting_and_nothing_else_does():
    changed = fake_runs.changed
    same = [
        fake_runs.CONFIG,
        changed(seed=3),
        changed(loss__primary="focal", loss__beta=3.0),
        changed(loss__options__s_avuc__temperature=0.2),
        changed(interleaved__enabled=True),
        changed(optimizer__l2=1e-5),
        changed(search={}, evaluate_every=1, keep_checkpoints=1),
    ]
    assert set(_setting_names(same)) == {SETTING}
    other = changed()
    del other["precision"]
    configs = [
        fake_runs.CONFIG,
        changed(optimizer__learning_rate=0.2),
        changed(optimizer__decay_epochs=[11]),
        changed(epochs=100),
        changed(data__train_split="train[:10%]"),
        other,
    ]
    names = _setting_names(configs)
    assert len(set(names)) == len(configs)
    assert "optimizer.learning_rate 0.2" in names[1]
    assert "optimizer.learning_rate 0.1" in names[2]
    assert names[3] == "digits wrn-10-1 100 epochs batch 64"
    assert names[4] == "digits wrn-10-1 train[:10%] 16 epochs batch 64"
    assert names[5].endswith(", precision absent")
