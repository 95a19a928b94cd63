import warnings

import pytest

from caltrain_tf.interop import robustness_metrics as adapter


@pytest.fixture(scope="session")
def rm():
    """The real robustness_metrics, where it is installed."""
    # Its imports warn of old names in NumPy and elsewhere.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return adapter.register()
        except ImportError as error:
            pytest.skip(f"robustness_metrics is not installed: {error}")
