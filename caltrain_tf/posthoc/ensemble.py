"""Mixtures of tempered, plain and uniform predictions."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from caltrain_tf import inputs, layers
from caltrain_tf.posthoc import base
from caltrain_tf.posthoc.temperature import best_temperature

# Uniform predictions alone are ties, which have no predicted class.
NOT_UNIFORM = 1e-4


class EnsembleTemperatureScaling(base.Calibrator):
    """Mixes tempered, plain and uniform predictions.

        p = w_1 softmax(logits / T) + w_2 softmax(logits) + w_3 / K

    T is the temperature of temperature scaling. The weights, at least 0 and of
    sum 1, minimise the negative log-likelihood. The predicted classes stay the
    same. Calibrated logits are log p.

    Args:
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        temperature_: The temperature T.
        weights_: The weights w, `(3,)`.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[9.0, 0.0], [0.0, 9.0], [1.0, 0.0], [9.0, 0.0]]
        >>> scaler = ct.posthoc.EnsembleTemperatureScaling()
        >>> scaler.fit(logits, [0, 1, 0, 1]).weights_.round(2).tolist()
        [0.0, 0.44, 0.56]

    Reference:
        Zhang et al., "Mix-n-Match: Ensemble and Compositional Methods for
        Uncertainty Calibration in Deep Learning", 2020.
    """

    fitted_names = ("temperature_", "weights_")

    def _fit(self, logits, labels, weights):
        self.temperature_ = best_temperature(logits, labels, weights)
        scaled = logits / logits.dtype.type(self.temperature_)
        tempered, plain = (
            inputs.at_class(log_softmax(each, axis=1), labels)
            for each in (scaled, logits)
        )
        uniform = np.full_like(plain, -np.log(logits.shape[1]))
        self.weights_ = mixture_weights(
            np.stack([tempered, plain, uniform]).astype(np.float64), weights
        )
        if self.weights_[2] > 1 - NOT_UNIFORM:
            self.weights_ = np.array([0.0, NOT_UNIFORM, 1 - NOT_UNIFORM])

    def _transform(self, logits):
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights_).astype(logits.dtype)
        scale = logits.dtype.type(1.0 / self.temperature_)
        mixed = log_softmax(logits * scale, axis=1) + logs[0]
        np.logaddexp(mixed, log_softmax(logits, axis=1) + logs[1], out=mixed)
        uniform = logs[2] - logits.dtype.type(np.log(logits.shape[1]))
        return np.logaddexp(mixed, uniform, out=mixed)

    def _layer(self, **options):
        options["name"] = "ensemble_temperature"
        return layers.EnsembleTemperature(
            self.temperature_, self.weights_.tolist(), **options
        )


def mixture_weights(logs, counts):
    """The most likely weights of parts with log-probabilities `(parts, N)`."""
    # A factor per example does not matter, and this one prevents underflow.
    parts = np.exp(logs - logs.max(axis=0))
    counts = counts / counts.sum()

    def value_and_gradient(weights):
        # The sum of the weights makes it 1 at the minimum.
        mixed = np.maximum(weights @ parts, np.finfo(float).tiny)
        value = weights.sum() - counts @ np.log(mixed)
        return value, 1.0 - parts @ (counts / mixed)

    found = minimize(
        value_and_gradient,
        np.full(len(parts), 1.0 / len(parts)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(parts),
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    return found.x / found.x.sum()
