"""Frost: an icy texture over the image."""

import functools
import os

import numpy as np
import tensorflow as tf

_ENDINGS = (".png", ".jpg", ".jpeg")
# Of the published photographs: mean of red, green and blue, and the standard
# deviation. Two of the five are the same.
_TINTS = (
    ((78, 149, 166), 19),
    ((201, 205, 214), 22),
    ((201, 205, 214), 22),
    ((138, 153, 165), 29),
    ((112, 123, 135), 43),
)
_TEXTURE_SIZE = 512
_NUM_DIRECTIONS = 7


def frost(images, draws, keep, amount, scale, frost_dir=None):
    """Lays a random part of a frost photograph over an image.

    Args:
        images: `(batch, size, size, 3)`, in [0, 1].
        draws: `Draws`.
        keep: Factor of the image.
        amount: Factor of the frost.
        scale: Of the photographs.
        frost_dir: A folder of photographs, of which the first five by name are
            used, as published. Without it they are generated textures of the
            photographs' colours and contrasts, which is not what CIFAR-10-C
            and ImageNet-C have.
    """
    photographs = _photographs(frost_dir, scale)
    size = images.shape[1]
    shapes = np.array([photo.shape[:2] for photo in photographs])
    if shapes.min() < size:
        raise ValueError(
            f"The photographs in `frost_dir`, times {scale}, must have at "
            f"least {size} x {size} pixels. Received: {shapes.min()} pixels in "
            f"frost_dir={frost_dir!r}"
        )
    which = draws.integers([], 0, len(photographs) - 1)
    corners = (draws.uniform([2]) * (shapes[which] - size)).astype(int)
    ice = np.stack(
        [
            photographs[photo][row : row + size, column : column + size]
            for photo, (row, column) in zip(which, corners, strict=True)
        ]
    )
    frosty = ice.astype(np.float32)
    frosty *= np.float32(amount / 255)
    frosty += np.float32(keep) * images
    return frosty


@functools.lru_cache(maxsize=4)
def _photographs(frost_dir, scale):
    if frost_dir is None:
        photographs = [
            _texture(seed, *tint) for seed, tint in enumerate(_TINTS)
        ]
    else:
        photographs = _read(frost_dir)
    # Outside of the input pipeline's graph, on the host.
    with tf.init_scope(), tf.device("CPU:0"):
        resized = [
            tf.image.resize(
                photo, np.round(np.multiply(photo.shape[:2], scale))
            )
            for photo in photographs
        ]
        return [np.round(photo.numpy()).astype(np.uint8) for photo in resized]


def _read(folder):
    names = sorted(
        name for name in os.listdir(folder) if name.lower().endswith(_ENDINGS)
    )
    if not names:
        raise ValueError(
            f"`frost_dir` must hold images, files that end in {_ENDINGS}. "
            f"Received: frost_dir={folder!r}"
        )
    with tf.init_scope(), tf.device("CPU:0"):
        return [
            tf.io.decode_image(
                tf.io.read_file(os.path.join(folder, name)),
                channels=3,
                expand_animations=False,
            ).numpy()
            for name in names[:5]
        ]


def _texture(seed, mean, scale):
    """Returns needles of ice that grow in patches of one direction each."""
    rng = np.random.RandomState(seed)
    across, down = np.meshgrid(
        np.fft.rfftfreq(_TEXTURE_SIZE), np.fft.fftfreq(_TEXTURE_SIZE)
    )
    radius = np.hypot(across, down)

    def filtered(response):
        noise = rng.standard_normal((_TEXTURE_SIZE, _TEXTURE_SIZE))
        field = np.fft.irfft2(np.fft.rfft2(noise) * response)
        return field / field.std()

    patches = np.stack(
        [
            filtered(np.exp(-((radius * 60) ** 2)))
            for _ in range(_NUM_DIRECTIONS)
        ]
    )
    shares = np.exp(4 * patches)
    shares /= shares.sum(axis=0)
    needles = 0.0
    for share, angle in zip(
        shares, rng.uniform(0, np.pi, _NUM_DIRECTIONS), strict=True
    ):
        along = across * np.cos(angle) + down * np.sin(angle)
        aside = down * np.cos(angle) - across * np.sin(angle)
        # Long in one direction, thin in the other; bright where it is thin.
        lines = filtered(np.exp(-((along * 90) ** 2) - (aside * 9) ** 2))
        needles = needles + share * np.exp(-3 * np.abs(lines))
    clouds = filtered(1 / np.maximum(radius, 1 / 128) ** 1.5)
    ice = clouds + needles / needles.std()
    ice = (ice - ice.mean()) / ice.std()
    return np.clip(ice[..., np.newaxis] * scale + mean, 0, 255)
