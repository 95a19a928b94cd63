"""What all calibrators have in common."""

import keras
import numpy as np
import tensorflow as tf

from caltrain_tf.metrics.blocks import map_blocks
from caltrain_tf.metrics.inputs import as_predictions
from caltrain_tf.metrics.inputs import check_values
from caltrain_tf.posthoc import saving
from caltrain_tf.posthoc.rows import as_rows
from caltrain_tf.posthoc.tempered import row_max


class Calibrator:
    """A map from logits to calibrated logits that is fitted to labels.

    A subclass lists its constructor's arguments in `option_names` and what a
    fit finds in `fitted_names`, and defines `_fit`, `_transform` and `_layer`.
    """

    option_names = ()
    fitted_names = ()

    def fit(self, logits, labels=None):
        """Fits the calibrator.

        Args:
            logits: Logits `(N, K)`: an array, which may be memory-mapped, a
                tensor, or anything else with `__array__`; or a
                `tf.data.Dataset` of `(logits, labels)` batches, which is read
                once for each evaluation and never held in memory.
            labels: Class ids `(N,)`, or one-hot rows `(N, K)`; left out for a
                dataset.

        Returns:
            The calibrator itself.
        """
        self._fit(as_rows(logits, labels))
        return self

    def transform(self, logits):
        """Calibrated logits.

        Args:
            logits: Logits `(N, K)`, or a dataset of batches of them or of
                tuples that begin with them.

        Returns:
            A NumPy array `(N, K)`, float64 for float64 logits and else
            float32; or a dataset with the logits replaced.
        """
        self._check_fitted()
        if isinstance(logits, tf.data.Dataset):
            return self._transform_dataset(logits)
        logits = as_predictions(logits, "logits")
        self._check_classes(logits.shape[1])
        check_values(logits, from_logits=True, name="logits")
        calibrated = np.empty_like(logits, order="C")

        def block(start, stop):
            calibrated[start:stop] = self._transform(logits[start:stop])

        map_blocks(block, len(logits), logits.itemsize * logits.shape[1])
        return calibrated

    def predict_proba(self, logits):
        """Calibrated probabilities `(N, K)`; see `transform`."""
        probs = self.transform(logits)
        if isinstance(probs, tf.data.Dataset):
            return _map_first(probs, tf.nn.softmax)

        def block(start, stop):
            rows = probs[start:stop]
            rows -= row_max(rows)[:, None]
            np.exp(rows, out=rows)
            rows /= np.einsum("ij->i", rows)[:, None]

        map_blocks(block, len(probs), probs.itemsize * probs.shape[1])
        return probs

    def as_layer(self):
        """A Keras layer that does what `transform` does; it has no training."""
        self._check_fitted()
        return self._layer()

    def append_to(self, model):
        """The model with calibrated logits, as one that can be saved.

        Args:
            model: A functional or sequential Keras model with one output of
                logits `(batch, K)`. It is not changed; its layers are shared.

        Returns:
            A functional `keras.Model`.
        """
        self._check_fitted()
        outputs = getattr(model, "outputs", None)
        if not outputs or len(outputs) != 1 or len(outputs[0].shape) != 2:
            raise ValueError(
                "`model` must be a functional or a built sequential model with "
                "one output (batch, classes). Received: "
                f"model.outputs={outputs}"
            )
        self._check_classes(outputs[0].shape[1])
        return keras.Model(
            model.inputs,
            self.as_layer()(outputs[0]),
            name=f"{model.name}_calibrated",
        )

    def save(self, path):
        """Writes a JSON file that `ct.posthoc.load` reads."""
        self._check_fitted()
        saving.save(self, path)

    def get_config(self):
        """Everything that the constructor takes."""
        return {name: getattr(self, name) for name in self.option_names}

    def __repr__(self):
        """The constructor's call."""
        options = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({options})"

    def _transform_dataset(self, dataset):
        spec = dataset.element_spec
        first = spec[0] if isinstance(spec, tuple) else spec
        if first.shape.rank is not None and first.shape[-1] is not None:
            self._check_classes(first.shape[-1])
        return _map_first(dataset, self.as_layer())

    def _check_fitted(self):
        if not all(hasattr(self, name) for name in self.fitted_names):
            raise ValueError(
                f"This {type(self).__name__} is not fitted yet: call "
                "`fit(logits, labels)` first."
            )

    def _check_classes(self, num_classes):
        expected = getattr(self, "num_classes_", num_classes)
        if num_classes not in (None, expected):
            raise ValueError(
                f"`logits` must have the {expected} classes that "
                f"{type(self).__name__} was fitted to. "
                f"Received: {num_classes} classes"
            )


def _map_first(dataset, function):
    """Applies a function to the logits of `logits` or `(logits, ...)`."""
    if isinstance(dataset.element_spec, tuple):
        return dataset.map(lambda logits, *rest: (function(logits), *rest))
    return dataset.map(function)
