import numpy as np
import pytest

from caltrain_tf.experiments import prediction_files

LOGITS = np.random.default_rng(0).normal(size=(5, 3))
LABELS = np.array([0, 1, 2, 0, 1], "int32")


def test_round_trip(tmp_path):
    path = tmp_path / "predictions" / "test.npz"
    prediction_files.save(path, LOGITS, LABELS)
    logits, labels = prediction_files.load(path)
    np.testing.assert_array_equal(logits, LOGITS.astype("float32"))
    np.testing.assert_array_equal(labels, LABELS)
    assert logits.dtype == "float32" and labels.dtype == "int64"
    assert [file.name for file in path.parent.iterdir()] == ["test.npz"]


def test_a_half_written_file_is_an_error(tmp_path):
    path = tmp_path / "test.npz"
    prediction_files.save(path, LOGITS, LABELS)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="`path`.*test.npz"):
            prediction_files.load(path)


def test_other_files_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        prediction_files.load(tmp_path / "missing.npz")
    pickled = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "pickle.npz", logits=pickled, labels=pickled)
    with pytest.raises(ValueError, match="`path`"):
        prediction_files.load(tmp_path / "pickle.npz")


def test_bad_predictions_are_not_written(tmp_path):
    spoilt = LOGITS.copy()
    spoilt[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"`logits`.*3"):
        prediction_files.save(tmp_path / "a.npz", spoilt, LABELS)
    assert list(tmp_path.iterdir()) == []


def test_buckets():
    path = "ram://predictions/test.npz"
    prediction_files.save(path, LOGITS, LABELS)
    np.testing.assert_array_equal(prediction_files.load(path)[1], LABELS)
