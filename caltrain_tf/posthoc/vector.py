"""Vector scaling."""

from caltrain_tf.posthoc.affine import TemperedCalibrator


class VectorScaling(TemperedCalibrator):
    """Scales and shifts the logit of each class: `logits * scale + bias`.

    With the logits divided by the temperature of temperature scaling first, it
    minimises

        mean NLL + penalty (mean((scale - 1)^2) + mean(bias^2))

    so that with few data it falls back to temperature scaling. A penalty of 0
    is vector scaling as it was published.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of folds for that. Where examples x classes exceed 1e7, only
            the first of them is held out.
        max_iterations: Of L-BFGS.

    Attributes:
        scale_: `(K,)`, with the temperature in it.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> shifted = logits + [1, 0, 0]
        >>> scaler = ct.posthoc.VectorScaling().fit(shifted, labels)
        >>> float(np.round(scaler.bias_[0] - scaler.bias_[1], 0))
        -2.0

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "vector"
