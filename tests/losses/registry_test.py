import inspect

import keras
import ml_collections
import numpy as np
import pytest

import caltrain_tf as ct
from tests.losses.cases import NAMES, get


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_loss_of_that_name(name):
    assert get(name).name == name


def test_avuc_gs_is_avuc_with_the_gradient_stopped():
    loss = ct.losses.get("avuc_gs")
    assert isinstance(loss, ct.losses.AvUC)
    assert loss.stop_gradient
    assert not ct.losses.get("avuc").stop_gradient


def test_instances_and_configs():
    loss = ct.losses.SBECE(num_bins=7, from_logits=True)
    assert ct.losses.get(loss) is loss
    assert ct.losses.get(np.square) is np.square
    for config in (
        loss.get_config(),
        keras.losses.serialize(loss),
        {"name": "sb_ece", "num_bins": 7, "from_logits": True},
        ml_collections.ConfigDict(
            {"name": "sb_ece", "num_bins": 7, "from_logits": True}
        ),
    ):
        assert ct.losses.get(config).get_config() == loss.get_config()


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        ("sb-ece", "Did you mean 'sb_ece'.*identifier='sb-ece'"),
        ("SBECE", "Did you mean 'sb_ece'"),
        ("zzz", "must be one of 'nll', 'focal'"),
        ({"name": "fokal"}, "Did you mean 'focal'"),
        ({"gamma": 1.0}, "`name`"),
        (None, "identifier=None"),
        (3.0, "identifier=3.0"),
    ],
)
def test_unknown_names(identifier, message):
    with pytest.raises(ValueError, match=message):
        ct.losses.get(identifier)


@pytest.mark.parametrize(
    "loss", [ct.CompositeLoss("nll", "mmce"), ct.losses.Groupwise("mmce", 3)]
)
def test_a_loss_with_parts_is_got_from_what_keras_serializes(loss):
    config = keras.losses.serialize(loss)
    assert ct.losses.get(config).get_config() == loss.get_config()


def test_options_are_those_of_the_constructor():
    for name in NAMES:
        config = ct.losses.get(name, from_logits=True).get_config()
        assert ct.losses.options(name).items() <= config.items()
    assert ct.losses.options("sb_ece") == {
        "num_bins": 15,
        "temperature": 0.01,
        "norm": 2,
        "binning": "label",
        "root": True,
        "lower": 0.0,
    }
    assert ct.losses.options("avuc_gs")["stop_gradient"] is True
    assert ct.losses.options("mse") == {}
    assert list(ct.losses.LABELS) == list(NAMES)
    with pytest.raises(ValueError, match="Did you mean 'sb_ece'"):
        ct.losses.options("sbece")


def test_what_is_written_is_what_is_called():
    source = inspect.getsource(ct.losses.SBECE.__init__)
    assert "num_bins=15" in source and "temperature=0.01" in source
    assert "num_bins=15" in inspect.getsource(ct.losses.sb_ece)


class Sharper(ct.losses.Focal):
    """What a user may write."""

    def __init__(self, **kwargs):
        super().__init__(gamma=1.0, **kwargs)


def test_a_subclass_may_have_another_constructor():
    loss, reference = Sharper(name="sharper"), ct.losses.Focal(1.0)
    probs = np.array([[0.9, 0.1], [0.7, 0.3]], "float32")
    assert loss([0, 1], probs) == reference([0, 1], probs)
    assert loss.get_config()["gamma"] == 1.0
