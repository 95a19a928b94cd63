import sys

import numpy as np
import pytest

import caltrain_tf as ct
from benchmarks import small_samples
from tests.posthoc.data import calibrated, softmax


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["small_samples.py", *map(str, arguments)])
    small_samples.main()


def test_prints_a_row_for_each_size_and_network(monkeypatch, tmp_path, capsys):
    logits, labels = calibrated(200, 3)
    np.savez(tmp_path / "halves.npz", probs=softmax(2 * logits), labels=labels)
    np.savez(tmp_path / "other.npz", images=logits)
    np.savez(
        tmp_path / "two.npz",
        calibration_logits=logits,
        calibration_labels=labels,
        test_logits=logits,
        test_labels=labels,
    )
    np.savez(
        tmp_path / "shifted.npz",
        clean_logits=logits,
        clean_labels=labels,
        corrupted_logits=logits[100:].reshape(1, 2, 50, 3),
        corrupted_labels=labels[100:150],
    )
    run(monkeypatch, f"--outputs={tmp_path}", "--draws=2")
    output = capsys.readouterr().out
    ece, largest, nll = output.split("\nTest ")[1:]
    names = [line.split(" | ")[1] for line in ece.splitlines()[4:] if line]
    digits = ["digits, logistic regression", "digits, random forest", "mean"]
    assert names == [
        *("halves", "shifted", "shifted, corrupted", "two"),
        *(*digits, *digits),
    ]
    # All 100 examples of a half are one draw, which is the largest as well.
    scaler = ct.posthoc.TemperatureScaling("sb_ece")
    scaler.fit(2 * logits[:100], labels[:100])
    probs = scaler.predict_proba(2 * logits[100:])
    error = 100 * ct.metrics.calibration_error(probs, labels[100:])
    for text in (ece, largest):
        (line,) = (each for each in text.splitlines() if "halves" in each)
        assert line.endswith(f" {error:.2f} |")
    value = ct.metrics.negative_log_likelihood(probs, labels[100:])
    assert f"{value:.3f}" in nll


def test_names_a_missing_folder(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, f"--outputs={tmp_path / 'none'}")
    assert "--outputs must be a folder" in capsys.readouterr().err
