"""TensorBoard: scalars, images and the configuration."""

import json

import tensorflow as tf


class Summaries:
    """Writes TensorBoard events.

    Args:
        folder: The folder of the events, or None to write nothing.
    """

    def __init__(self, folder=None):
        """Opens the event file."""
        if folder is None:
            self._writer = tf.summary.create_noop_writer()
        else:
            self._writer = tf.summary.create_file_writer(folder)

    def scalars(self, values, step):
        """Writes numbers under their names."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def image(self, name, image, step):
        """Writes an image.

        Args:
            name: Its name.
            image: The bytes of a PNG file, or an array `(height, width, 1, 3 or
                4)` of uint8 or of floats in [0, 1].
            step: The step that it belongs to.
        """
        if isinstance(image, bytes):
            image = tf.io.decode_png(image)
        image = tf.convert_to_tensor(image)
        if image.shape.rank != 3 or image.shape[-1] not in (1, 3, 4):
            raise ValueError(
                "`image` must be PNG bytes or an array (height, width, "
                f"channels). Received: shape={tuple(image.shape)}"
            )
        with self._writer.as_default(step=step):
            tf.summary.image(name, image[tf.newaxis])

    def hyperparameters(self, config):
        """Writes the configuration as a table."""
        lines = ["| setting | value |", "|---|---|"]
        for key, value in config.items():
            lines.append(f"| {key} | `{json.dumps(value)}` |")
        with self._writer.as_default(step=0):
            tf.summary.text("hyperparameters", "\n".join(lines))

    def flush(self):
        """Makes TensorBoard see what was written."""
        self._writer.flush()

    def close(self):
        """Closes the event file."""
        self._writer.close()
