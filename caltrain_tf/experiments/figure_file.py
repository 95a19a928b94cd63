"""Figures as files."""

import io

from caltrain_tf import files


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
    files.write_bytes(path, png.getvalue())
    return png.getvalue()
