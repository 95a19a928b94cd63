import json

import numpy as np
import pytest

from caltrain_tf import evaluation
from caltrain_tf.experiments import run_state


def write_run(folder, shifts, num_examples):
    """A run of 20 test examples, measured under some shifts."""
    (folder / "results.json").write_text('{"ece": 0.5}')
    predictions = folder / "predictions"
    evaluation.save_predictions(
        predictions / "test.npz",
        np.zeros((20, 3), np.float32),
        np.zeros(20, np.int64),
    )
    description = {"num_examples": num_examples}
    (predictions / "shift.json").write_text(json.dumps(description))
    rows = [
        {
            "dataset": "digits",
            "corruption": corruption,
            "severity": severity,
            "calibrator": "none",
            "metric": "ece",
            "value": 0.1,
        }
        for corruption, severity in shifts
    ]
    (folder / "shift.csv").write_text(evaluation.shift_csv(rows))


def test_results(tmp_path):
    assert run_state.read_results(tmp_path) is None
    assert not run_state.is_finished(tmp_path)
    (tmp_path / "results.json").write_text('{"ece": 0.5}')
    assert run_state.read_results(tmp_path) == {"ece": 0.5}
    assert run_state.is_finished(tmp_path)
    shift = run_state.shift_options(["fog"], [1])
    assert not run_state.is_finished(tmp_path, shift)


def test_shift(tmp_path):
    def is_finished(*asked):
        return run_state.is_finished(tmp_path, run_state.shift_options(*asked))

    shifts = [("none", 0), ("fog", 1), ("fog", 2), ("snow", 1)]
    write_run(tmp_path, shifts, 20)
    assert is_finished(["fog"], [1, 2])
    assert is_finished(["fog", "snow"], [1], 20)
    # All that there are.
    assert is_finished(["fog", "snow"], [1], 500)
    assert not is_finished(["fog", "snow"], [1, 2])
    assert not is_finished(["fog"], [1], 10)
    write_run(tmp_path, shifts, 10)
    assert is_finished(["fog"], [1], 10)
    assert not is_finished(["fog"], [1])


def test_what_is_asked_of_shift_is_checked():
    with pytest.raises(ValueError, match="mean 'fog'.*shift_corruptions='fgo'"):
        run_state.shift_options(["fgo"], [1])
    with pytest.raises(ValueError, match="shift_severities=6"):
        run_state.shift_options(["fog"], [6])
    with pytest.raises(ValueError, match="shift_examples=0"):
        run_state.shift_options(["fog"], [1], 0)


def test_epochs(tmp_path):
    assert run_state.epochs_done(tmp_path) == 0
    (tmp_path / "metrics.jsonl").write_text("{}\n{}\n")
    assert run_state.epochs_done(tmp_path) == 2
