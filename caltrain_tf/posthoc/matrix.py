"""Matrix scaling."""

from caltrain_tf.posthoc.affine import TemperedCalibrator


class MatrixScaling(TemperedCalibrator):
    """Any affine map of the logits: `logits @ scale.T + bias`.

    With the logits divided by the temperature of temperature scaling first, it
    minimises

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))

    As published, without a penalty, its K^2 parameters overfit any data set
    but a huge one. Drawn towards temperature scaling, it falls back to that.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of folds for that. Where examples x classes^2 exceed 1e7,
            only the first of them is held out.
        max_iterations: Of L-BFGS.

    Attributes:
        scale_: `(K, K)`, with the temperature in it.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> mixed = logits + 0.5 * logits[:, [1, 2, 0]]
        >>> scaler = ct.posthoc.MatrixScaling().fit(mixed, labels)
        >>> scaler.scale_.shape
        (3, 3)

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "matrix"
