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


def fitted(**values):
    return {"fitted": {"temperature_": 1.5, "num_classes_": 2, **values}}


def test_numpy_options_can_be_saved_and_the_file_has_the_usual_mode(tmp_path):
    scaler = ct.posthoc.TemperatureScaling(
        "sb_ece",
        num_bins=np.int64(15),
        likelihood_weight=np.float32(0.5),
        multi_label=np.bool_(False),
    )
    scaler.fit(np.array([[3.0, 0.0], [1.0, 0.0]] * 2), [0, 0, 0, 1])
    scaler.save(tmp_path / "scaler.json")
    assert ct.posthoc.load(tmp_path / "scaler.json").num_bins == 15
    (tmp_path / "other").touch()
    mode = (tmp_path / "other").stat().st_mode
    assert (tmp_path / "scaler.json").stat().st_mode == mode


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"version": 2}, "2.*should be"),
        ({"format": "pickle"}, "pickle.*should be"),
        ({"class": "IsotonicScaling"}, "IsotonicScaling"),
        ({"options": {"objective": "mse"}}, "`objective`"),
        ({"class": "VectorScaling", "options": {}}, "scale_"),
        ({"fitted": [1.0, 2]}, "`path` must"),
        (fitted(temperature_="hot"), "hot"),
    ],
)
def test_wrong_content_is_a_clear_error(path, values, message):
    change(path, **values)
    with pytest.raises(ValueError, match=message):
        ct.posthoc.load(path)


def test_options_of_earlier_versions_are_left_out(path):
    change(path, options={"num_bins": 10, "binning": "bin"})
    assert ct.posthoc.load(path).num_bins == 10


@pytest.mark.parametrize(
    "content", [b"", b"[1, 2]", b"\xff\xfe", b'{"format": ']
)
def test_other_files_are_a_clear_error(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="`path` must be a .*scaler.json"):
        ct.posthoc.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ct.posthoc.load(tmp_path / "nothing.json")


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    before = path.read_text()

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(OSError, match="disk full"):
        ct.posthoc.load(path).save(path)
    assert path.read_text() == before
    assert os.listdir(path.parent) == [path.name]
