import keras
import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf import files


def test_names_stand_for_networks():
    # `resnets_test.py` gets its network by name.
    model = ct.models.get("wrn-16-2", num_classes=7)
    assert model.name == "wrn-16-2"
    assert model.output_shape == (None, 7)


def test_a_mistyped_name_gets_the_nearest():
    for name, nearest in (("wrn2810", "wrn-28-10"), ("resnet50", "resnet-50")):
        with pytest.raises(ValueError, match=f"mean '{nearest}'.*'{name}'"):
            ct.models.get(name)


@pytest.mark.parametrize("identifier", ["xyz", None])
def test_what_is_no_name_is_an_error(identifier):
    with pytest.raises(ValueError, match="Received"):
        ct.models.get(identifier)


def test_networks_of_keras_applications_return_logits():
    model = ct.models.get(
        "MobileNetV2", num_classes=4, input_shape=(32, 32, 3), alpha=0.35
    )
    assert model.output_shape == (None, 4)
    assert model.layers[-1].activation is keras.activations.linear


def test_networks_of_files(tmp_path):
    def save(path, activation):
        layers = [keras.Input([5]), keras.layers.Dense(3, activation)]
        keras.Sequential(layers).save(path)
        return str(path)

    path = save(tmp_path / "logits.keras", None)
    model = ct.models.get(path, num_classes=3, input_shape=(5,))
    assert model.output_shape == (None, 3)
    with pytest.raises(ValueError, match="num_classes=4.*which has 3"):
        ct.models.get(path, num_classes=4, input_shape=(5,))
    with pytest.raises(ValueError, match=r"input_shape=\(6,\)"):
        ct.models.get(path, num_classes=3, input_shape=(6,))
    bucket = files.as_path("ram://bucket/model.keras")
    bucket.write_bytes((tmp_path / "logits.keras").read_bytes())
    copy = ct.models.load(bucket)
    for one, other in zip(model.weights, copy.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    path = save(tmp_path / "probabilities.keras", "softmax")
    with pytest.raises(ValueError, match="must return logits.*softmax"):
        ct.models.get(path, num_classes=3, input_shape=(5,))
