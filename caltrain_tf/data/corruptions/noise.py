"""Noise: Gaussian, shot and impulse noise."""

import numpy as np

from caltrain_tf.data.corruptions import core


@core.corruption(
    cifar=((0.04,), (0.06,), (0.08,), (0.09,), (0.1,)),
    imagenet=((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
)
def gaussian_noise(image, rng, scale):
    """Adds normal noise with standard deviation `scale`, where white is 1."""
    return image + rng.normal(scale=scale, size=image.shape)


@core.corruption(
    cifar=((500,), (250,), (100,), (75,), (50,)),
    imagenet=((60,), (25,), (12,), (5,), (3,)),
)
def shot_noise(image, rng, photons):
    """Applies Poisson noise, where white is an average of `photons` photons."""
    return rng.poisson(image * photons) / photons


@core.corruption(
    cifar=((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    imagenet=((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
)
def impulse_noise(image, rng, amount):
    """Sets a fraction `amount` of the values to black or white."""
    draws = rng.random(image.shape)
    return np.where(draws < amount, draws < amount / 2, image)
