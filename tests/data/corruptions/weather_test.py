import numpy as np

import caltrain_tf as ct
from caltrain_tf.data.corruptions import weather


def test_frost_is_a_part_of_a_texture():
    images = np.zeros((4, 65, 65, 3), np.uint8)
    corrupt = ct.data.corruptions.get("frost", 3)
    windows = [
        np.lib.stride_tricks.sliding_window_view(
            np.floor(texture * 0.7), (65, 65, 3)
        )[:, :, 0]
        for texture in weather.textures(1)
    ]
    for ice in corrupt(images, np.arange(4)).numpy():
        # The first pixels tell where it may be.
        assert any(
            (window[y, x] == ice).all()
            for window in windows
            for y, x in np.argwhere(
                (window[:, :, 0, :3] == ice[0, :3]).all(axis=(2, 3))
            )
        )


def test_textures_have_the_colours_of_the_photographs():
    for texture, (mean, scale) in zip(
        weather.textures(1.0), weather._TINTS, strict=True
    ):
        # Clipping to 0 to 255 moves them by 0.5 and 6%, on any machine.
        np.testing.assert_allclose(texture.mean(axis=(0, 1)), mean, atol=2)
        np.testing.assert_allclose(texture.std(axis=(0, 1)), scale, rtol=0.1)


def test_images_may_be_larger_than_textures():
    images = np.zeros((1, 520, 520, 3), np.uint8)
    frosted = ct.data.corruptions.get("frost", 3)(images, [0]).numpy()
    np.testing.assert_array_equal(frosted[:, :8], frosted[:, 512:])
