"""Ensemble temperature scaling."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from caltrain_tf import layers
from caltrain_tf.posthoc import likelihood
from caltrain_tf.posthoc import tempered
from caltrain_tf.posthoc.base import Calibrator

# While the solver is outside of the simplex by rounding.
SMALLEST_MIXTURE = 1e-300


class EnsembleTemperatureScaling(Calibrator):
    """Mixes tempered, plain and uniform predictions.

        p = w_1 softmax(logits / T) + w_2 softmax(logits) + w_3 / K

    T is that of temperature scaling; then the weights, which are at least 0
    and sum to 1, minimise the negative log-likelihood. The predicted classes
    stay the same. Calibrated logits are log p.

    Attributes:
        temperature_: T.
        weights_: w, `(3,)`.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> logits = np.array([[9.0, 0.0], [0.0, 9.0], [1.0, 0.0], [9.0, 0.0]])
        >>> scaler = ct.posthoc.EnsembleTemperatureScaling()
        >>> scaler.fit(logits, [0, 1, 0, 1]).weights_.round(2).tolist()
        [0.0, 0.44, 0.56]

    Reference:
        Zhang et al., "Mix-n-Match: Ensemble and Compositional Methods for
        Uncertainty Calibration in Deep Learning", 2020.
    """

    fitted_names = ("temperature_", "weights_")

    def _fit(self, rows):
        inverse = likelihood.fit(rows, likelihood.overview(rows))

        def block(logits, labels, _):
            shifted = tempered.shift(logits)
            of_label = shifted[np.arange(len(labels)), labels]
            return [
                b * of_label - tempered.row_moments(shifted, b)[0]
                for b in (inverse, 1.0)
            ]

        logs = np.concatenate(rows.map(block), axis=1)
        uniform = np.full((1, logs.shape[1]), -np.log(rows.num_classes))
        self.temperature_ = 1.0 / inverse
        self.weights_ = mixture_weights(np.concatenate([logs, uniform]))

    def _transform(self, logits):
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights_).astype(logits.dtype)
        scale = logits.dtype.type(1.0 / self.temperature_)
        mixed = log_softmax(logits * scale, axis=1) + logs[0]
        np.logaddexp(mixed, log_softmax(logits, axis=1) + logs[1], out=mixed)
        uniform = logs[2] - logits.dtype.type(np.log(logits.shape[1]))
        return np.logaddexp(mixed, uniform, out=mixed)

    def _layer(self):
        return layers.EnsembleTemperature(
            self.temperature_, self.weights_, name="ensemble_temperature"
        )


def mixture_weights(logs):
    """The weights of the most likely mixture.

    Args:
        logs: Logarithms of what each part gives to each label, `(parts, N)`.

    Returns:
        Weights `(parts,)`.
    """
    # A factor of an example cancels, and keeps the others from underflowing.
    parts = np.exp(logs - logs.max(axis=0))

    def value_and_gradient(weights):
        mixed = np.maximum(weights @ parts, SMALLEST_MIXTURE)
        return -np.mean(np.log(mixed)), -np.mean(parts / mixed, axis=1)

    found = minimize(
        value_and_gradient,
        np.full(len(parts), 1.0 / len(parts)),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(parts),
        constraints={
            "type": "eq",
            "fun": lambda weights: np.sum(weights) - 1.0,
            "jac": np.ones_like,
        },
        options={"ftol": 1e-12, "maxiter": 500},
    )
    weights = np.clip(found.x, 0.0, 1.0)
    return weights / weights.sum()
