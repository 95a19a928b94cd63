import os

import matplotlib.figure
import numpy as np
import pytest
from PIL import Image

from caltrain_tf.experiments.figure_file import save_figure


def test_a_figure_replaces_the_one_that_is_there(tmp_path):
    path = tmp_path / "figure.png"
    for width in (2, 3):
        png = save_figure(matplotlib.figure.Figure((width, 1), dpi=50), path)
        assert path.read_bytes() == png
        with Image.open(path) as image:
            assert np.asarray(image).shape[:2] == (50, 50 * width)
    assert [file.name for file in tmp_path.iterdir()] == ["figure.png"]


def test_what_is_there_survives_a_failure(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    png = save_figure(matplotlib.figure.Figure(), path)

    def full_disk(file):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        save_figure(matplotlib.figure.Figure((2, 1)), path)
    assert path.read_bytes() == png
