"""Photographs in small, and what the published recipe does to CIFAR-10."""

import functools

import numpy as np

# Mean absolute change in levels (0 to 255), severities 1 to 5, of CIFAR-10
# test images 5000 to 6999 by the published recipe.
CIFAR10_C = {
    "gaussian_noise": (7.989, 11.89, 15.728, 17.621, 19.5),
    "shot_noise": (5.886, 8.273, 12.973, 14.917, 18.154),
    "impulse_noise": (1.266, 2.533, 3.824, 6.401, 8.922),
    "defocus_blur": (1.372, 3.307, 4.987, 6.495, 9.275),
    "glass_blur": (11.123, 11.253, 11.058, 18.075, 17.378),
    "motion_blur": (7.005, 10.415, 13.095, 13.127, 15.319),
    "zoom_blur": (8.738, 10.31, 12.325, 14.403, 16.4),
    "snow": (10.656, 23.657, 25.274, 37.042, 51.578),
    "frost": (30.493, 44.777, 49.89, 44.811, 43.666),
    "fog": (10.777, 21.316, 27.492, 32.48, 38.869),
    "brightness": (10.057, 20.377, 30.263, 39.626, 56.394),
    "contrast": (10.651, 21.297, 25.556, 29.815, 36.205),
    "elastic_transform": (21.716, 19.884, 17.87, 16.514, 13.623),
    "pixelate": (1.767, 3.396, 4.125, 6.206, 8.634),
    "jpeg_compression": (5.261, 6.513, 6.939, 7.388, 7.997),
}


# Of the same images: mean level, mean standard deviation in an image, and mean
# difference between pixels side by side.
CIFAR10_STATISTICS = (120.5, 51.1, 13.8)


def statistics(images):
    """The three figures of each image."""
    values = images.astype(float)
    return np.stack(
        [
            values.mean(axis=(1, 2, 3)),
            values.std(axis=(1, 2)).mean(axis=-1),
            np.abs(np.diff(values, axis=2)).mean(axis=(1, 2, 3)),
        ],
        axis=-1,
    )


@functools.cache
def photographs(count=32, size=32):
    """Small crops of scikit-learn's photographs, those most like CIFAR-10."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    crops = []
    for photograph in load_sample_images().images:
        for shrink in (3, 4, 5, 6):
            height, width = (side // shrink for side in photograph.shape[:2])
            small = Image.fromarray(photograph).resize((width, height))
            small = np.asarray(small)
            for top in range(0, height - size + 1, size // 4):
                for left in range(0, width - size + 1, size // 4):
                    crops.append(small[top : top + size, left : left + size])
    crops = np.stack(crops)
    gaps = np.log(statistics(crops) / CIFAR10_STATISTICS)
    nearest = np.argsort(np.abs(gaps).max(axis=1), kind="stable")[:count]
    return crops[nearest]
