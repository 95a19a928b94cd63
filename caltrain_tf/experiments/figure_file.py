"""Figures as files."""

import io

import tensorflow as tf


def save_figure(figure, path):
    """Writes a figure as PNG, so that it is there whole or not at all.

    Args:
        figure: Of matplotlib.
        path: The file.

    Returns:
        The bytes of the file.
    """
    png = io.BytesIO()
    figure.savefig(png, format="png")
    temporary = f"{path}.tmp"
    with tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(png.getvalue())
    tf.io.gfile.rename(temporary, path, overwrite=True)
    return png.getvalue()
