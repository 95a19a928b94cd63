"""Interleaved training for `model.fit`, and a check for memorisation."""

import keras
import numpy as np
from keras import ops

from caltrain_tf import checks, replicas

INPUTS = "inputs"
HELD_OUT = "held_out"


def interleave(majority, held_out):
    """Joins two datasets of batches into the epochs of interleaved training.

    Args:
        majority: Batches `(x, y)` or `(x, y, weight)` for the compiled loss: a
            `tf.data.Dataset`, a `keras.utils.PyDataset`, or a list.
        held_out: Batches of the same kind for the calibration loss.

    Returns:
        A dataset for `InterleavedModel.fit`: first the majority batches, then
        the held-out batches, each marked with its kind.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> one = (np.ones((1, 4)), np.zeros(1))
        >>> two = (np.ones((2, 4)), np.zeros(2))
        >>> both = ct.interleaved.interleave([one, one], [two])
        >>> [both[i][0]["held_out"].tolist() for i in range(len(both))]
        [[0.0], [0.0], [1.0, 1.0]]
    """
    if hasattr(majority, "concatenate"):

        def mark(value):
            return lambda x, *rest: (_mark(x, value), *rest)

        held_out = held_out.map(mark(1.0))
        return majority.map(mark(0.0)).concatenate(held_out)
    return _Interleaved(majority, held_out)


class _Interleaved(keras.utils.PyDataset):
    def __init__(self, majority, held_out):
        super().__init__()
        self._parts = majority, held_out

    def __len__(self):
        return sum(map(len, self._parts))

    def __getitem__(self, index):
        majority, held_out = self._parts
        after = index - len(majority)
        x, *rest = majority[index] if after < 0 else held_out[after]
        return (_mark(x, float(after >= 0)), *rest)


@keras.saving.register_keras_serializable("caltrain_tf")
class InterleavedModel(keras.Model):
    """A model whose `fit` minimises two losses in turn in every epoch.

    As in appendix B of the paper, it minimises the compiled loss on the
    majority of the training set and then the calibration loss on the held-out
    rest. It wraps `model` and shares its weights, so after training you use
    `model` itself. `evaluate` and `predict` take plain inputs.

    The history has the mean `calibration_loss` over the held-out batches of an
    epoch, and `val_calibration_loss` over validation data. `loss` is the mean
    over all batches, each with the loss that it was trained with.

    Args:
        model: The model to train.
        calibration_loss: A `keras.losses.Loss`, such as `SBECE`.
        **kwargs: Arguments of `keras.Model`, such as `name`.

    Example:
        >>> import caltrain_tf as ct, keras, numpy as np
        >>> batches = [(np.eye(8), np.arange(8) % 2)] * 4
        >>> inside = keras.Sequential([keras.Input([8]), keras.layers.Dense(2)])
        >>> model = ct.interleaved.InterleavedModel(
        ...     inside, ct.losses.SBECE(from_logits=True)
        ... )
        >>> model.compile("sgd", ct.losses.NLL(from_logits=True))
        >>> both = ct.interleaved.interleave(batches[:3], batches[3:])
        >>> history = model.fit(both, shuffle=False, verbose=0)
        >>> int(model.optimizer.iterations)
        4
        >>> sorted(history.history)
        ['calibration_loss', 'loss']
    """

    def __init__(self, model, calibration_loss, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(calibration_loss, keras.losses.Loss):
            raise ValueError(
                "`calibration_loss` must be a `keras.losses.Loss`. "
                f"Received: calibration_loss={calibration_loss!r}"
            )
        self.model = model
        self.calibration_loss = calibration_loss
        self._calibration_mean = keras.metrics.Mean("calibration_loss")

    def call(self, inputs, training=None):
        """Returns the outputs of the wrapped model."""
        return self.model(_plain(inputs), training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Returns the loss for which the batch is marked."""
        # Both losses are computed, because XLA and replicas cannot branch
        # around a collective. A loss is cheap compared with the model.
        primary = super().compute_loss(
            x, y, y_pred, sample_weight, training=training
        )
        calibration = self.calibration_loss(y, y_pred, sample_weight)
        held_out = x[HELD_OUT][0] if _is_marked(x) else 1.0
        # Keras divides losses by the number of replicas.
        count = replicas.replica_count()
        self._calibration_mean.update_state(calibration * count, held_out)
        if not _is_marked(x):
            return primary
        penalty = sum(map(ops.sum, self.losses)) / count
        return ops.where(held_out > 0, calibration + penalty, primary)

    def build(self, input_shape):
        """Builds the wrapped model."""
        if not self.model.built:
            self.model.build(_plain(input_shape))
        self.built = True

    def get_config(self):
        """Returns the arguments of the constructor, serialized."""
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "model": serialize(self.model),
            "calibration_loss": serialize(self.calibration_loss),
        }

    @classmethod
    def from_config(cls, config):
        """Returns a model from the result of `get_config`."""
        deserialize = keras.saving.deserialize_keras_object
        config = dict(config)
        model = deserialize(config.pop("model"))
        calibration_loss = deserialize(config.pop("calibration_loss"))
        return cls(model, calibration_loss, **config)


def warn_if_memorised(train_ece, test_ece):
    """Warns if a network has memorised its training set.

    On such a training set a calibration loss has nothing to correct, and the
    paper recommends interleaved training. This function warns if the train ECE
    is below 1% and the test ECE more than 5 times as large. In the paper's
    table it is 15 to 50 times as large for NLL, and at most 1.4 for others.

    Args:
        train_ece: Expected calibration error on the training set, in [0, 1].
        test_ece: The same on data that were not used for training.

    Returns:
        Whether it warned.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.interleaved.warn_if_memorised(train_ece=0.0249, test_ece=0.0351)
        False

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, appendix B.
    """
    for name, value in (("train_ece", train_ece), ("test_ece", test_ece)):
        if not 0 <= value <= 1:
            raise ValueError(
                f"`{name}` must be in [0, 1], not in percent. "
                f"Received: {name}={value}"
            )
    memorised = train_ece < 0.01 and test_ece > 5 * train_ece
    if memorised:
        checks.warn(
            f"The train ECE ({train_ece:.2%}) is below 1% while the test ECE "
            f"({test_ece:.2%}) is far above it: the training set is memorised, "
            "and a calibration loss on it has nothing to do. Train "
            "interleaved, or take another primary loss, such as focal."
        )
    return memorised


def _mark(x, held_out):
    first = keras.tree.flatten(x)[0]
    xp = np if isinstance(first, np.ndarray) else ops
    marks = xp.full(xp.shape(first)[:1], held_out, "float32")
    return {INPUTS: x, HELD_OUT: marks}


def _is_marked(x):
    return isinstance(x, dict) and set(x) == {INPUTS, HELD_OUT}


def _plain(x):
    return x[INPUTS] if _is_marked(x) else x
