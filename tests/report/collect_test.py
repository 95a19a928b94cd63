import json
import shutil

import pytest

import caltrain_tf as ct
from caltrain_tf.report.rows import rows_files
from tests.report import fake_runs

SETTING = "digits wrn-10-1 12 epochs batch 32"


def test_every_run_is_a_result_row(runs, rows):
    assert [(row["objective"], row["seed"]) for row in rows.results] == [
        ("nll", 0),
        ("nll", 1),
        ("nll+mmce", 0),
        ("nll+mmce", 1),
    ]
    row = rows.results[2]
    path = runs / "nll+mmce" / "seed0" / "results.json"
    for key, value in json.loads(path.read_text()).items():
        assert row[key] == value
    assert row["setting"] == SETTING
    assert (row["primary"], row["secondary"]) == ("nll", "mmce")
    assert row["interleaved"] is False
    assert not rows.left_out


def test_the_order_is_that_of_the_paper(tmp_path):
    objectives = (
        ("focal", "sb_ece", False),
        ("mse", None, False),
        ("nll", "s_avuc", True),
        ("focal", None, False),
        ("nll", "s_avuc", False),
        ("nll", None, False),
    )
    fake_runs.write_runs(tmp_path, objectives, seeds=(0,))
    collected = ct.report.collect(tmp_path)
    assert [row["objective"] for row in collected.results] == [
        "nll",
        "nll+s_avuc",
        "nll+s_avuc-interleaved",
        "focal",
        "focal+sb_ece",
        "mse",
    ]
    first = list(dict.fromkeys(row["objective"] for row in collected.shift))
    assert first == [row["objective"] for row in collected.results]


def test_rows_and_runs_come_together(runs, rows, tmp_path):
    (tmp_path / "rows").mkdir()
    for name, text in rows_files(rows).items():
        (tmp_path / "rows" / name).write_text(text)
    more = tmp_path / "more"
    fake_runs.write_run(more, "focal", None, False, 0)
    collected = ct.report.collect([tmp_path / "rows", more])
    assert [row["objective"] for row in collected.results] == [
        *["nll"] * 2,
        *["nll+mmce"] * 2,
        "focal",
    ]
    assert ct.report.collect(str(tmp_path / "rows")).results == rows.results
    with pytest.raises(ValueError, match="with seed 0.*rows'.*seed0'"):
        ct.report.collect([tmp_path / "rows", runs])


def test_the_same_folder_twice_is_once(runs, rows):
    assert ct.report.collect([runs, runs / "nll"]).results == rows.results


def test_a_run_in_two_folders_is_an_error(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs / "nll" / "seed1", copy)
    with pytest.raises(ValueError, match="nll with seed 1.*nll/seed1'.*copy'"):
        ct.report.collect([runs, copy])


def test_a_run_twice_in_a_rows_folder_is_an_error(rows, tmp_path):
    twice = rows._replace(results=[*rows.results, rows.results[0]])
    for name, text in rows_files(twice).items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="a run once.*nll with seed 0"):
        ct.report.collect(tmp_path)


def test_what_is_not_whole_is_left_out_and_named(runs, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    config = (folder / "nll" / "seed0" / "config.json").read_text()
    broken = {
        "a": {"config.json": config},
        "b": {"config.json": config, "results.json": '{"accuracy": 0.'},
        "c": {"config.json": config, "results.json": '{"accuracy": 0.5}'},
        "d": {
            "config.json": config,
            "results.json": '{"accuracy": NaN, "ece": 0.1}',
        },
        "e": {"config.json": "[]", "results.json": "{}"},
    }
    for name, files in broken.items():
        (folder / name).mkdir()
        for file, text in files.items():
            (folder / name / file).write_text(text)
    seed0 = folder / "nll" / "seed0"
    (seed0 / "shift.csv").write_text("severity\n")
    (seed0 / "predictions" / "test.npz").write_bytes(b"half")
    shutil.rmtree(folder / "nll" / "seed1" / "predictions")
    collected = ct.report.collect(folder)
    assert len(collected.results) == 4
    reasons = {
        (row["folder"].removeprefix(f"{folder}/"), row["part"]): row["reason"]
        for row in collected.left_out
    }
    assert reasons["a", "run"] == "not finished: no results.json"
    assert reasons["b", "run"].startswith("not readable")
    assert reasons["c", "run"].endswith("no 'ece'")
    assert "accuracy is nan" in reasons["d", "run"]
    assert reasons["e", "run"].startswith("not readable")
    assert "predictions file" in reasons["nll/seed0", "predictions"]
    assert "columns" in reasons["nll/seed0", "shift"]
    assert len(reasons) == 7
    have = {(row["objective"], row["seed"]) for row in collected.reliability}
    assert have == {("nll+mmce", 0), ("nll+mmce", 1)}


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must be folders of runs.*Received"):
        ct.report.collect(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="No finished run.*no results.json"):
        ct.report.collect(tmp_path)
