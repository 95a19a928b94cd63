import pytest

from caltrain_tf.training import warn_if_memorised


# The paper's table of train and test ECE, l1 norm and equal-width bins.
@pytest.mark.parametrize(
    "train_ece, test_ece", [(0.0045, 0.0688), (0.0005, 0.0266), (0.0, 0.01)]
)
def test_warns(train_ece, test_ece):
    with pytest.warns(UserWarning, match="Train interleaved"):
        assert warn_if_memorised(train_ece, test_ece)


@pytest.mark.parametrize(
    "train_ece, test_ece",
    [(0.0918, 0.0421), (0.0249, 0.0351), (0.008, 0.009), (0.0, 0.0)],
)
def test_is_silent(train_ece, test_ece):
    assert not warn_if_memorised(train_ece, test_ece)


def test_percents_are_refused():
    with pytest.raises(ValueError, match="test_ece=6.88"):
        warn_if_memorised(0.45, 6.88)
