"""Layers that saved models contain.

Calibration layers take logits or probabilities and return calibrated logits;
`ConformalSet` returns prediction sets. All compute in float32 under any
precision policy, do not train, and pass Keras masks on.
"""

import keras
from keras import ops

from caltrain_tf.inputs import as_logits

# Stands for the logarithm of a mixture weight of 0 in float32.
LOG_OF_NOTHING = -1e30


class PredictionLayer(keras.layers.Layer):
    """Base class of layers that take the predictions of a network.

    Args:
        from_probs: Whether inputs are probabilities. Those below 1e-12 are
            raised to it.
        multi_label: Whether the last axis holds independent binary problems.
            Otherwise it holds classes, or one binary logit or probability.
        **kwargs: Arguments of `keras.layers.Layer`.

    Keras saves the arguments of constructors, if they are Python's own numbers,
    strings, lists and tuples.
    """

    def __init__(self, *, from_probs=False, multi_label=False, **kwargs):
        super().__init__(**{"dtype": "float32", "trainable": False, **kwargs})
        self.from_probs = from_probs
        self.multi_label = multi_label
        # Padding stays padding for the losses and metrics that follow.
        self.supports_masking = True

    def _to_logits(self, inputs):
        return as_logits(inputs, self.from_probs, self.multi_label)


class CalibrationLayer(PredictionLayer):
    """Base class of layers with `_calibrate(logits)` of `(..., classes)`."""

    def call(self, inputs):
        """Returns calibrated logits of the shape of `inputs`."""
        logits = self._calibrate(self._to_logits(inputs))
        if self.multi_label or inputs.shape[-1] == 1:
            logits = logits[..., 1:] - logits[..., :1]
        return ops.squeeze(logits, -1) if self.multi_label else logits

    def compute_output_shape(self, input_shape):
        """Returns the shape of the inputs."""
        return input_shape


@keras.saving.register_keras_serializable("caltrain_tf")
class Temperature(CalibrationLayer):
    """Divides logits by a `temperature` > 0; see `TemperatureScaling`."""

    def __init__(self, temperature, **kwargs):
        super().__init__(**kwargs)
        self.temperature = float(temperature)

    def _calibrate(self, logits):
        return logits / self.temperature


@keras.saving.register_keras_serializable("caltrain_tf")
class EnsembleTemperature(CalibrationLayer):
    """Logarithms of a mixture; see `ct.posthoc.EnsembleTemperatureScaling`.

    `temperature` is a number > 0; `weights` are three >= 0 that sum to 1.
    """

    def __init__(self, temperature, weights, **kwargs):
        super().__init__(**kwargs)
        self.temperature = float(temperature)
        self.mixture = [float(weight) for weight in weights]

    def _calibrate(self, logits):
        parts = [
            ops.log_softmax(logits / self.temperature, axis=-1),
            ops.log_softmax(logits, axis=-1),
            -ops.log(float(logits.shape[-1])) * ops.ones_like(logits),
        ]
        parts = [
            part + (ops.log(weight) if weight > 0 else LOG_OF_NOTHING)
            for part, weight in zip(parts, self.mixture, strict=True)
        ]
        return ops.logsumexp(ops.stack(parts), axis=0)


@keras.saving.register_keras_serializable("caltrain_tf")
class Affine(CalibrationLayer):
    """`logits @ matrix.T + bias`, or `logits * vector + bias`.

    `set_weights` sets scale and bias.

    Args:
        num_classes: The number of classes, 2 for binary problems.
        kind: `"vector"` or `"matrix"`.
        log_probabilities: Whether to apply `log_softmax` to the logits first.
        temperature: Number that the logits are divided by before `log_softmax`.
        centred: Whether to subtract the mean over the classes after it.
        lowest: Smaller log-probabilities are raised to it before centring.
        **kwargs: Arguments of `CalibrationLayer`.
    """

    def __init__(
        self,
        num_classes,
        kind,
        log_probabilities=False,
        temperature=1.0,
        centred=False,
        lowest=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.kind = kind
        self.log_probabilities = log_probabilities
        self.temperature = float(temperature)
        self.centred = bool(centred)
        self.lowest = lowest
        shape = (num_classes,) * (2 if kind == "matrix" else 1)
        self.scale = self.add_weight(shape, "zeros", name="scale")
        self.bias = self.add_weight((num_classes,), "zeros", name="bias")

    def _calibrate(self, logits):
        logits = logits / self.temperature
        if self.log_probabilities:
            logits = ops.log_softmax(logits, axis=-1)
        if self.lowest is not None:
            logits = ops.maximum(logits, self.lowest)
        if self.centred:
            logits = logits - ops.mean(logits, axis=-1, keepdims=True)
        if self.kind == "matrix":
            return ops.matmul(logits, ops.transpose(self.scale)) + self.bias
        return logits * self.scale + self.bias


class CurveLayer(CalibrationLayer):
    """Base class of curves of log-odds.

    A subclass defines `_curve(odds)` for log-odds `(..., curves)`. The
    parameters of the curves are weights, which `set_weights` sets.

    Args:
        shape: Shape of each parameter: the number of curves, 1 for binary
            problems, and points for `Isotonic`.
        **kwargs: Arguments of `CalibrationLayer`.
    """

    parameters = ()

    def __init__(self, shape, **kwargs):
        super().__init__(**kwargs)
        self.shape = tuple(shape)
        for name in self.parameters:
            weight = self.add_weight(self.shape, "zeros", name=name)
            setattr(self, name, weight)

    def _calibrate(self, logits):
        if logits.shape[-1] == 2:
            odds = self._curve(logits[..., 1:] - logits[..., :1])
            return ops.concatenate([ops.zeros_like(odds), odds], axis=-1)
        largest = ops.max(logits, axis=-1, keepdims=True)
        is_top = ops.one_hot(ops.argmax(logits, axis=-1), logits.shape[-1]) > 0
        powers = ops.where(is_top, 0.0, ops.exp(logits - largest))
        others = ops.sum(powers, axis=-1, keepdims=True)
        odds = logits - largest - ops.log1p(ops.maximum(others - powers, 0.0))
        # The log-sum-exp does not underflow where the largest logit leads.
        rest = ops.where(is_top, LOG_OF_NOTHING, logits)
        rest = ops.logsumexp(rest, axis=-1, keepdims=True)
        odds = ops.where(is_top, largest - rest, odds)
        return ops.log_sigmoid(self._curve(odds))


@keras.saving.register_keras_serializable("caltrain_tf")
class Platt(CurveLayer):
    """`a z + b`; see `ct.posthoc.PlattScaling`."""

    parameters = ("a", "b")

    def _curve(self, odds):
        return self.a * odds + self.b


@keras.saving.register_keras_serializable("caltrain_tf")
class Beta(CurveLayer):
    """`a log p - b log(1 - p) + c`; see `ct.posthoc.BetaCalibration`."""

    parameters = ("a", "b", "c")

    def _curve(self, odds):
        log, log_of_rest = ops.log_sigmoid(odds), ops.log_sigmoid(-odds)
        return self.a * log - self.b * log_of_rest + self.c


@keras.saving.register_keras_serializable("caltrain_tf")
class Isotonic(CurveLayer):
    """Lines between points `x, sigmoid(y)`; see `IsotonicCalibration`."""

    parameters = ("x", "y")

    def _curve(self, odds):
        x = ops.sigmoid(odds) if self.from_probs else odds
        curves, points = self.shape
        first = points * ops.arange(curves)

        def take(values, index):
            flat = ops.reshape(values, (-1,))
            return ops.take(flat, first + ops.minimum(index, points - 1))

        # The last point that is not above x, by bisection.
        index = ops.zeros_like(x, dtype="int32")
        for bit in reversed(range(points.bit_length())):
            later = index + 2**bit
            is_above = (later >= points) | (take(self.x, later) > x)
            index = ops.where(is_above, index, later)
        left, right = take(self.x, index), take(self.x, index + 1)
        share = (x - left) / ops.where(right > left, right - left, 1.0)
        share = ops.clip(share, 0.0, 1.0)

        def interpolate(values):
            low, high = take(values, index), take(values, index + 1)
            return low + share * (high - low)

        # Sums of p and of 1 - p, both exact near 0.
        probability = interpolate(ops.sigmoid(self.y))
        return ops.log(probability) - ops.log(interpolate(ops.sigmoid(-self.y)))


@keras.saving.register_keras_serializable("caltrain_tf")
class ConformalSet(PredictionLayer):
    """Prediction sets `(..., classes)` of booleans; see `ConformalSets`.

    Args:
        threshold: The largest score of a class that is in the set.
        method, k_reg, lam, randomized, seed: As in `ConformalSets`. The random
            numbers differ from call to call.
        **kwargs: Arguments of `PredictionLayer`.
    """

    def __init__(
        self, threshold, method, k_reg, lam, randomized, seed, **kwargs
    ):
        super().__init__(**kwargs)
        self.threshold = float(threshold)
        self.method = method
        self.k_reg = k_reg
        self.lam = lam
        self.randomized = randomized
        self.seed = seed
        if randomized:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, inputs):
        """Returns which classes are in the sets."""
        probs = ops.softmax(self._to_logits(inputs), axis=-1)
        bound, lam = self.bounds(self.threshold, self.lam)
        if self.method == "thr":
            return probs >= bound
        order = ops.argsort(-probs, axis=-1)
        ordered = ops.take_along_axis(probs, order, axis=-1)
        # 1 - score: the probability of all less probable classes.
        smaller = ops.flip(ops.cumsum(ops.flip(ordered, -1), axis=-1), -1)
        fit = ops.concatenate(
            [smaller[..., 1:], ops.zeros_like(smaller[..., :1])], axis=-1
        )
        if self.randomized:
            fit += ordered * keras.random.uniform(
                (*ops.shape(probs)[:-1], 1), seed=self.seed_generator
            )
        if self.method == "raps":
            rank = ops.arange(1, probs.shape[-1] + 1, dtype="float32")
            fit -= lam * ops.maximum(rank - self.k_reg, 0.0)
        return ops.take_along_axis(
            fit >= bound, ops.argsort(order, axis=-1), axis=-1
        )

    @staticmethod
    def bounds(threshold, lam):
        """What 1 - score of a class in a set is compared with.

        Many scores may be equal to the threshold, and rounding differs between
        float64, float32 and backends. It may only add classes: the smallest
        1 - score, whose relative error is up to 5e-6 in float32, and the
        penalty `lam` are lowered.
        """
        bound = 1.0 - threshold
        return bound - 1e-5 * abs(bound) - 1e-15, (1.0 - 1e-5) * lam

    def compute_output_spec(self, inputs):
        """Returns a boolean spec, with two classes for binary problems."""
        shape = (*inputs.shape, 1) if self.multi_label else inputs.shape
        return keras.KerasTensor((*shape[:-1], max(shape[-1], 2)), "bool")
