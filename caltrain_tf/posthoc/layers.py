"""Fitted calibrators as Keras layers: logits in, calibrated logits out.

They compute in float32 in any precision policy, do not train, and are
registered, so that a model that ends in one reloads from a `.keras` file.
"""

import keras
from keras import ops

# The logarithm of a mixture weight of 0, as far as float32 is concerned.
LOG_OF_NOTHING = -1e30


class CalibrationLayer(keras.layers.Layer):
    """What the layers share."""

    def __init__(self, **kwargs):
        """Takes the arguments of `keras.layers.Layer`."""
        super().__init__(**{"dtype": "float32", "trainable": False, **kwargs})

    def compute_output_shape(self, input_shape):
        """The shape of the logits."""
        return input_shape


@keras.saving.register_keras_serializable("caltrain_tf")
class Temperature(CalibrationLayer):
    """Logits / temperature."""

    def __init__(self, temperature, **kwargs):
        """Takes the temperature."""
        super().__init__(**kwargs)
        self.temperature = float(temperature)

    def call(self, logits):
        """Returns calibrated logits."""
        return logits / self.temperature

    def get_config(self):
        """Everything that the constructor takes."""
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable("caltrain_tf")
class EnsembleTemperature(CalibrationLayer):
    """Logarithms of a mixture; see `EnsembleTemperatureScaling`."""

    def __init__(self, temperature, weights, **kwargs):
        """Takes the temperature and the three weights of the mixture."""
        super().__init__(**kwargs)
        self.temperature = float(temperature)
        self.mixture = [float(weight) for weight in weights]

    def call(self, logits):
        """Returns calibrated logits."""
        uniform = -ops.log(float(logits.shape[-1])) * ops.ones_like(logits)
        parts = [
            ops.log_softmax(logits / self.temperature, axis=-1),
            ops.log_softmax(logits, axis=-1),
            uniform,
        ]
        logs = [
            ops.log(weight) if weight > 0 else LOG_OF_NOTHING
            for weight in self.mixture
        ]
        parts = [part + log for part, log in zip(parts, logs, strict=True)]
        return ops.logsumexp(ops.stack(parts), axis=0)

    def get_config(self):
        """Everything that the constructor takes."""
        return {
            **super().get_config(),
            "temperature": self.temperature,
            "weights": self.mixture,
        }


@keras.saving.register_keras_serializable("caltrain_tf")
class Affine(CalibrationLayer):
    """`logits @ matrix.T + bias`, or `logits * vector + bias`.

    The numbers are weights of the layer, which `set_weights` sets.
    """

    def __init__(self, num_classes, kind, log_probabilities=False, **kwargs):
        """Says what to compute.

        Args:
            num_classes: The number of classes.
            kind: `"vector"` or `"matrix"`.
            log_probabilities: Whether to take the logarithms of the softmax of
                the logits first.
            **kwargs: Of `keras.layers.Layer`.
        """
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.kind = kind
        self.log_probabilities = log_probabilities
        shape = (num_classes,) * (2 if kind == "matrix" else 1)
        self.scale = self.add_weight(
            shape=shape, initializer="zeros", name="scale"
        )
        self.bias = self.add_weight(
            shape=(num_classes,), initializer="zeros", name="bias"
        )

    def call(self, logits):
        """Returns calibrated logits."""
        if self.log_probabilities:
            logits = ops.log_softmax(logits, axis=-1)
        if self.kind == "matrix":
            return ops.matmul(logits, ops.transpose(self.scale)) + self.bias
        return logits * self.scale + self.bias

    def get_config(self):
        """Everything that the constructor takes."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "kind": self.kind,
            "log_probabilities": self.log_probabilities,
        }
