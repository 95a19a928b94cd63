import sys

import numpy as np
import pytest

import caltrain_tf as ct
from benchmarks import calibrators, networks
from tests.posthoc.data import calibrated, softmax


def run(monkeypatch, script, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
    script.main()


def test_prints_a_row_for_each_calibrator(tmp_path, monkeypatch, capsys):
    logits, labels = calibrated(200, 3)
    path = tmp_path / "net.npz"
    np.savez(path, test_logits=2 * logits, test_labels=labels)
    arguments = "--outputs", path, "--conformal_splits=3"
    run(monkeypatch, calibrators, *arguments)
    output = capsys.readouterr().out
    assert "net, 3 classes, 200 examples" in output
    for name in ("none", "ts", "structured_matrix", "thr", "aps", "raps"):
        assert output.count(f"\n| {name} | ") == 1


@pytest.mark.filterwarnings("ignore:Sample size too small")
def test_networks_are_calibrated_with_all_or_some_examples(
    tmp_path, monkeypatch, capsys
):
    generator = np.random.default_rng(0)
    for name in ("one", "two"):
        logits = generator.normal(size=(400, 3))
        labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(
            tmp_path / f"{name}.npz",
            calibration_logits=2 * logits[:200],
            calibration_labels=labels[:200],
            test_logits=2 * logits[200:],
            test_labels=labels[200:],
        )
    calibration, test = (
        [2 * logits[half], labels[half]]
        for half in (slice(0, 200), slice(200, 400))
    )
    run(monkeypatch, networks, tmp_path, "--only=TS", "--num_samples=5")
    whole = capsys.readouterr().out
    arguments = "--only=TS", "--examples=50", "--draws=2"
    run(monkeypatch, networks, tmp_path, *arguments)
    drawn = capsys.readouterr().out
    scaler = ct.posthoc.TemperatureScaling()
    errors = []
    for seed in (None, 0, 1):
        rows = np.arange(200)
        if seed is not None:
            rows = np.random.default_rng(seed).permutation(200)[:50]
        scaler.fit(calibration[0][rows], calibration[1][rows])
        probs = scaler.predict_proba(test[0])
        errors.append(100 * ct.metrics.calibration_error(probs, test[1]))
    assert f"| two       | {errors[0]:.2f} [" in whole
    low, high = sorted(errors[1:])
    mean = (low + high) / 2
    assert f"| two       | {mean:.2f} [{low:.2f}, {high:.2f}] |" in drawn


def test_halves_are_all_rows():
    fit, test = calibrators.halves(101, 0)
    assert (len(fit), len(test)) == (50, 51)
    np.testing.assert_array_equal(np.sort([*fit, *test]), np.arange(101))


def test_reads_logits_and_probabilities(tmp_path):
    logits, labels = calibrated(20, 3)
    path = tmp_path / "net.npz"
    np.savez(
        path,
        logits=logits,
        labels=labels,
        test_probs=softmax(logits),
        test_labels=labels,
        shifted_logits=np.zeros((2, 20, 3)),
        shifted_labels=labels,
    )
    found, found_labels = calibrators.read(path)
    expected = np.concatenate([logits, np.log(softmax(logits))])
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(found_labels, np.tile(labels, 2))
    np.savez(path, features=logits)
    with pytest.raises(SystemExit, match="with features"):
        calibrators.read(path)
