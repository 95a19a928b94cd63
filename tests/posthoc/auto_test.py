import keras
import numpy as np
import pytest
from sklearn.base import clone

import caltrain_tf as ct
from caltrain_tf.posthoc import auto
from tests.posthoc.data import calibrated


@pytest.fixture(scope="module")
def fitted():
    logits, labels = calibrated(400, 3)
    return ct.posthoc.AutoCalibration(cv=3).fit(2.5 * logits, labels)


def test_finds_what_helps_and_says_why(fitted):
    assert fitted.choice_ == "ts"
    assert isinstance(fitted.calibrator_, ct.posthoc.TemperatureScaling)
    assert fitted.nll_[fitted.choice_] < fitted.nll_["none"]
    assert f"doing nothing has {fitted.nll_['none']:.4g}" in fitted.reason_
    shown = repr(fitted)
    assert "AutoCalibration(cv=3): TemperatureScaling" in shown
    assert fitted.reason_ in shown
    assert repr(clone(fitted)) == "AutoCalibration(cv=3)"


def test_does_nothing_where_nothing_helps():
    logits, labels = calibrated(400, 3, seed=1)
    calibrator = ct.posthoc.AutoCalibration(cv=3).fit(logits, labels)
    assert calibrator.choice_ == "none"
    np.testing.assert_allclose(calibrator.transform(logits), logits)
    assert "and no calibrator a lower one" in calibrator.reason_


def test_one_example_is_too_few():
    with pytest.raises(ValueError, match="`logits`.*two examples.*: 1"):
        ct.posthoc.AutoCalibration().fit([[3.0, 0.0]], [0])


def test_the_simplest_within_one_standard_error_is_chosen():
    weights = np.full(4, 0.25)
    losses = {
        "none": np.full(4, 2.0),
        "first": np.array([1.0, 1.1, 0.96, 1.1]),
        "second": np.array([1.0, 1.0, 1.0, 1.1]),
    }
    # The mean difference is 0.015, its standard error 0.026.
    name, _, reason = auto.choose(losses, weights)
    assert name == "first" and reason.endswith("; doing nothing has 2.")
    assert "within one standard error of second, the lowest, 1.025" in reason
    losses["first"] = losses["second"] + [0.1, 0.1, 0.1, 0.2]
    name, means, _ = auto.choose(losses, weights)
    assert name == "second" and means["second"] == pytest.approx(1.025)
    # Doing nothing gets no margin: it must have the lowest itself.
    losses["none"] = losses["second"] + [0.1, -0.1, 0.1, -0.05]
    assert auto.choose(losses, weights)[0] == "second"
    losses["none"] = losses["second"] + [0.1, -0.1, 0.1, -0.15]
    assert auto.choose(losses, weights)[0] == "none"


def test_candidates_fit_the_task_and_the_number_of_examples():
    names = {
        size: list(auto.candidates(*size))
        for size in ((2000, 2), (200, 10), (50, 10), (5000, 1000))
    }
    simple = ["ts", "ensemble"]
    assert names == {
        (2000, 2): [*simple, "beta", "structured_matrix", "matrix", "isotonic"],
        (200, 10): [*simple, "beta", "structured_matrix", "matrix"],
        (50, 10): [*simple, "beta", "structured_matrix"],
        (5000, 1000): [*simple, "structured_vector", "beta"],
    }


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100, 101])
def test_simpler_calibrators_have_fewer_parameters(num_classes):
    num_examples = 50 * num_classes
    matrix = num_classes**2 + num_classes
    curves = num_classes if num_classes > 2 else 1
    counts = {
        "ts": 1,
        "ensemble": 3,
        "structured_vector": 2 * num_classes,
        "beta": 3 * curves,
        "structured_matrix": matrix,
        "matrix": matrix,
        "isotonic": curves * num_examples,
    }
    names = auto.candidates(num_examples, num_classes)
    found = [counts[name] for name in names]
    assert found == sorted(found)


@pytest.mark.parametrize("choice", ["isotonic", "none"])
def test_is_a_calibrator_of_every_shape(choice, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "choose", lambda *_: (choice, {choice: 1.0}, ""))
    generator = np.random.default_rng(0)
    probs = generator.random((200, 1))
    labels = (generator.random((200, 1)) < probs**2).astype(int)
    calibrator = ct.posthoc.AutoCalibration(cv=2, from_probs=True)
    calibrator.fit(probs, labels, sample_weight=np.full(200, 3.0))
    expected = probs
    if choice == "isotonic":
        single = ct.posthoc.IsotonicCalibration(from_probs=True)
        expected = single.fit(probs, labels).predict_proba(probs)
    np.testing.assert_allclose(
        calibrator.predict_proba(probs), expected, rtol=1e-6
    )
    calibrator.save(tmp_path / "auto.json")
    loaded = ct.posthoc.load(tmp_path / "auto.json")
    assert repr(loaded) == repr(calibrator)
    np.testing.assert_array_equal(
        loaded.transform(probs), calibrator.transform(probs)
    )
    inputs = keras.Input((1,))
    model = loaded.append_to(
        keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(inputs))
    )
    model.layers[1].set_weights([np.eye(1), np.zeros(1)])
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    logits = np.log(probs / (1 - probs)).astype("float32")
    np.testing.assert_allclose(model(logits), expected, rtol=1e-3, atol=1e-5)


def test_forests_of_scikit_learn_as_they_are():
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier

    x, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(20, random_state=0).fit(x[:300], y[:300])
    probs = forest.predict_proba(x[300:])
    calibrator = ct.posthoc.AutoCalibration(from_probs=True, cv=3)
    calibrator.fit(probs, y[300:])
    assert calibrator.predict_proba(probs).shape == (269, 2)
    table = ct.posthoc.compare(
        probs,
        y[300:],
        [ct.posthoc.PlattScaling()],
        from_probs=True,
        num_samples=20,
    )
    assert list(table.scores)[0] == "none"
