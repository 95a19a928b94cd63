"""Batch normalisation in one fused operation on TensorFlow."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("caltrain_tf")
class BatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer for images; on TensorFlow, trained by a fused operation.

    Keras computes the moments and the normalisation of a training batch by an
    operation each, and so do their gradients, which is slow without XLA to fuse
    them (`benchmarks/batch_normalization.py`). What is computed, the variables
    and all other cases are Keras'.

    Example:
        >>> import caltrain_tf as ct
        >>> model = ct.models.get("wrn-10-1", num_classes=10)
        >>> type(model.get_layer("final_bn")).__mro__[1].__name__
        'BatchNormalization'
    """

    def call(self, inputs, training=None, mask=None):
        """Normalises `inputs`, `(batch, height, width, channels)`."""
        if not training or not self._is_fusible(inputs, mask):
            return super().call(inputs, training=training, mask=mask)
        import tensorflow as tf

        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            # As in Keras, statistics are never of half precision.
            x=ops.cast(inputs, "float32"),
            scale=ops.convert_to_tensor(self.gamma),
            offset=ops.convert_to_tensor(self.beta),
            mean=[],
            variance=[],
            # `tf.nn`'s function would raise it to 1.001e-5.
            epsilon=self.epsilon,
        )
        # The operation gives n / (n - 1) times the variance of the batch.
        count = ops.cast(ops.prod(ops.shape(inputs)[:-1]), "float32")
        variance *= 1 - 1 / count
        for moving, value in (
            (self.moving_mean, mean),
            (self.moving_variance, variance),
        ):
            moving.assign(moving * self.momentum + value * (1 - self.momentum))
        return ops.cast(outputs, self.compute_dtype)

    def _is_fusible(self, inputs, mask):
        return (
            keras.backend.backend() == "tensorflow"
            and self.trainable
            and mask is None
            and len(inputs.shape) == 4
            and self.axis in (-1, 3)
            and self.center
            and self.scale
            and self.variable_dtype == "float32"
            # What GPUs take.
            and self.epsilon >= 1e-5
            and not self.synchronized
            # Which not every version of Keras has.
            and not getattr(self, "renorm", False)
        )
