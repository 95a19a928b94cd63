"""Every shape equals its two-dimensional form, in exact and streaming metrics.

The table of `caltrain_tf/inputs.py`, and weights.
"""

import functools

import keras
import numpy as np
import pytest

from caltrain_tf import inputs, metrics
from tests.metrics import cases
from tests.metrics.cases import probabilities, sample, tied

EXACT = cases.EXACT | {
    f"bootstrap_{name}": functools.partial(
        metrics.bootstrap, getattr(metrics, name), num_samples=3
    )
    for name in (
        "calibration_error",
        "brier_score",
        "marginal_calibration_error",
        "aurc",
    )
}
GROUPS = np.array(["a", "b", "a", "c"])

# One of each kind of state; the others share their input.
STREAMING = {
    kind.__name__: kind
    for kind in (
        metrics.ExpectedCalibrationError,
        metrics.MarginalCalibrationError,
        metrics.SoftBinnedECE,
        metrics.AverageUncertainty,
    )
}
PROBS, LABELS = probabilities(24, 5)
LOGITS, _ = sample(24, 5)
P, Z = PROBS[:, 0], LOGITS[:, 0]
BINARY = (LABELS == 0).astype(int)
IGNORED = np.where(np.arange(24) % 5 == 0, -1, LABELS)
WEIGHT = np.array([0.5, 2.0, 0.0, 1.0], "float32")
# The arguments as given, and the same for two dimensions.
SHAPES = {
    "binary": (
        {"probs": P[:, None], "labels": BINARY},
        {"probs": np.stack([1 - P, P], axis=1), "labels": BINARY},
    ),
    "binary_logits": (
        {"probs": Z[:, None], "labels": BINARY[:, None], "from_logits": True},
        {
            "probs": np.stack([0 * Z, Z], axis=1),
            "labels": BINARY,
            "from_logits": True,
        },
    ),
    "pixels": (
        {
            "probs": PROBS.reshape(4, 3, 2, 5),
            "labels": LABELS.reshape(4, 3, 2),
            "sample_weight": WEIGHT,
        },
        {
            "probs": PROBS,
            "labels": LABELS,
            "sample_weight": np.repeat(WEIGHT, 6),
        },
    ),
    "tokens": (
        {
            "probs": LOGITS.reshape(4, 6, 5),
            "labels": IGNORED.reshape(4, 6),
            "from_logits": True,
            "ignore_class": -1,
        },
        {
            "probs": LOGITS,
            "labels": np.maximum(IGNORED, 0),
            "from_logits": True,
            "sample_weight": (IGNORED >= 0).astype("float32"),
        },
    ),
    "one_hot_tokens": (
        {
            "probs": PROBS.reshape(4, 6, 5),
            "labels": np.eye(5)[LABELS].reshape(4, 6, 5),
        },
        {"probs": PROBS, "labels": LABELS},
    ),
    "multi_label": (
        {
            "probs": P.reshape(4, 6),
            "labels": BINARY.reshape(4, 6),
            "multi_label": True,
            "sample_weight": WEIGHT[:, None],
        },
        {
            "probs": np.stack([1 - P, P], axis=1),
            "labels": BINARY,
            "sample_weight": np.repeat(WEIGHT, 6),
        },
    ),
    "multi_label_pixels": (
        {
            "probs": Z.reshape(2, 3, 4),
            "labels": np.where(IGNORED < 0, 7, BINARY).reshape(2, 3, 4),
            "multi_label": True,
            "ignore_class": 7,
            "from_logits": True,
        },
        {
            "probs": np.stack([0 * Z, Z], axis=1),
            "labels": BINARY,
            "from_logits": True,
            "sample_weight": (IGNORED >= 0).astype("float32"),
        },
    ),
}
all_shapes = pytest.mark.parametrize("shape", SHAPES)


@all_shapes
def test_exact_metrics(shape):
    given, flat = SHAPES[shape]
    for name, function in EXACT.items():
        value, expected = function(**given), function(**flat)
        assert repr(value) == repr(expected), name
    groups = np.resize(GROUPS, len(given["labels"]))
    flat_groups = np.repeat(groups, len(flat["labels"]) // len(groups))
    for metric in (metrics.ks_error, metrics.marginal_calibration_error):
        table = metrics.groupwise(metric, groups=groups, **given)
        expected = metrics.groupwise(metric, groups=flat_groups, **flat)
        assert table == expected and len(table.values) > 1
    if shape.startswith("binary"):
        given = {**given, "probs": given["probs"][:, 0]}
        assert metrics.brier_score(**given) == metrics.brier_score(**flat)


def streamed(kind, probs, labels, sample_weight=None, **options):
    metric = kind(**options)
    metric.update_state(labels, probs, sample_weight)
    return float(metric.result())


@all_shapes
def test_streaming_metrics(shape):
    given, flat = SHAPES[shape]
    for name, kind in STREAMING.items():
        assert streamed(kind, **given) == streamed(kind, **flat), name


def test_streaming_metrics_ask_for_a_column_of_binary_predictions():
    with pytest.raises(ValueError, match=r"\(batch, 1\)"):
        metrics.BrierScore().update_state(BINARY, P)


def test_streaming_metrics_heed_the_mask_of_a_keras_layer():
    masked = keras.layers.Masking()(
        keras.ops.convert_to_tensor(
            np.where((IGNORED < 0)[:, None], 0, LOGITS).reshape(4, 6, 5)
        )
    )
    flat = SHAPES["tokens"][1]
    for name, kind in STREAMING.items():
        metric = kind(from_logits=True)
        metric.update_state(LABELS.reshape(4, 6), masked)
        assert float(metric.result()) == streamed(kind, **flat), name


@pytest.mark.parametrize("name", EXACT)
def test_whole_weights_are_repetitions(name):
    function = EXACT[name]
    weight = np.random.default_rng(0).integers(0, 4, 300)
    for probs, labels in (probabilities(300, 4), tied(300)):
        repeated = np.repeat(probs, weight, 0), np.repeat(labels, weight)
        expected = function(*repeated)
        scaled = (np.float32(1e-7) * weight).astype("float32")
        for weights in (weight, scaled):
            value = function(probs, labels, sample_weight=weights)
            if name == "reliability_curve":
                for got, wanted in zip(value[:2], expected[:2], strict=True):
                    np.testing.assert_allclose(got, wanted, atol=1e-6)
                scale = weights.sum() / weight.sum()
                np.testing.assert_allclose(
                    value[2], scale * expected[2], rtol=1e-6
                )
            elif name == "risk_coverage_curve":
                for got, wanted in zip(value, expected, strict=True):
                    np.testing.assert_allclose(got, wanted, atol=1e-6)
            elif name.startswith("bootstrap"):
                assert value.value == pytest.approx(expected.value, abs=1e-6)
            else:
                # What is left is how float32 rounds scaled weights.
                assert value == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_debiased_errors_count_effective_examples():
    # One bin: the plain error minus acc (1 - acc) / (n_eff - 1).
    probs, labels = probabilities(50, 3)
    weight = np.random.default_rng(1).random(50)
    plain = metrics.calibration_error(probs, labels, 1, sample_weight=weight)
    accuracy = metrics.accuracy(probs, labels, sample_weight=weight)
    effective = weight.sum() ** 2 / np.sum(weight**2)
    squared = plain**2 - accuracy * (1 - accuracy) / (effective - 1)
    expected = np.sqrt(max(squared, 0.0))
    for scale in (1, 1e-7):
        options = {"debias": True, "sample_weight": scale * weight}
        value = metrics.calibration_error(probs, labels, 1, **options)
        assert value == pytest.approx(expected, abs=1e-9)
        streaming = metrics.ExpectedCalibrationError(1, debias=True)
        streaming.update_state(labels, probs, options["sample_weight"])
        assert float(streaming.result()) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", EXACT)
def test_examples_of_weight_zero_leave_no_trace(name):
    padded = np.concatenate([np.full((3, 5), np.nan, "float32"), PROBS])
    labels = np.concatenate([[0, 1, 2], LABELS])
    weight = np.repeat([0.0, 1.0], [3, 24])
    value = EXACT[name](padded, labels, sample_weight=weight)
    assert repr(value) == repr(EXACT[name](PROBS, LABELS))


def test_pixels_need_little_memory(monkeypatch):
    import tracemalloc

    monkeypatch.setattr(inputs, "BLOCK_BYTES", 32 * 1024)
    # How many blocks several threads hold at once is a matter of chance.
    monkeypatch.setattr(inputs, "available_cores", lambda: 1)
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4, 128, 128, 21)).astype("float32")
    labels = generator.integers(21, size=(4, 128, 128)).astype("int32")
    metrics.calibration_error(logits, labels, from_logits=True)
    tracemalloc.start()
    metrics.calibration_error(logits, labels, from_logits=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * logits.nbytes
