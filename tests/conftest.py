"""A run that several tests look at."""

import pytest


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a short interleaved run; only to be read."""
    from tests.experiments.configs import tiny, train

    config = tiny()
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    config.loss.secondary = "s_avuc"
    config.interleaved.enabled = True
    config.interleaved.held_out_fraction = 0.34
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(config, folder)
    return folder
