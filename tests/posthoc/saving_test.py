import json
import os

import numpy as np
import pytest

import caltrain_tf as ct


@pytest.fixture
def path(tmp_path):
    scaler = ct.posthoc.TemperatureScaling()
    scaler.fit(np.array([[3.0, 0.0]] * 4), [0, 0, 0, 1])
    scaler.save(tmp_path / "scaler.json")
    return tmp_path / "scaler.json"


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"version": 2}, "must be of version 1.*Received: version=2"),
        ({"class": "IsotonicScaling"}, "Received: class='IsotonicScaling'"),
        ({"format": "pickle"}, "no format="),
        ({"options": {"objective": "mse"}}, "complete TemperatureScaling"),
        ({"options": {"colour": 1}}, "complete TemperatureScaling"),
        ({"fitted": {}}, "temperature_"),
        ({"fitted": {"temperature_": "hot"}}, "finite numbers"),
        ({"fitted": {"temperature_": float("nan")}}, "finite numbers"),
        ({"fitted": {"temperature_": [[1.0], [2.0, 3.0]]}}, "complete"),
    ],
)
def test_wrong_content_is_a_clear_error(path, values, message):
    change(path, **values)
    with pytest.raises(ValueError, match=message):
        ct.posthoc.load(path)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff\xfe", b"PK\x03"])
def test_other_files_are_a_clear_error(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="`path` must be a .*scaler.json"):
        ct.posthoc.load(path)


def test_half_written_file_is_a_clear_error(path):
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match="whole JSON file"):
        ct.posthoc.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ct.posthoc.load(tmp_path / "nothing.json")


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    before = path.read_text()

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", fail)
    with pytest.raises(OSError, match="disk full"):
        ct.posthoc.load(path).save(path)
    assert path.read_text() == before
    assert os.listdir(path.parent) == [path.name]
