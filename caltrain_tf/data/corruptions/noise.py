"""Noise that is added to each value of an image."""

import tensorflow as tf


def gaussian_noise(images, draws, scale):
    """Adds normal noise of standard deviation `scale`."""
    return images + draws.normal(images.shape[1:], scale=scale)


def shot_noise(images, draws, photons):
    """Counts photons: Poisson noise, where white is `photons` of them."""
    return draws.poisson(images * photons) / photons


def impulse_noise(images, draws, amount):
    """Sets a share `amount` of the values to black or white."""
    chance = draws.uniform(images.shape[1:])
    noisy = tf.where(chance < amount, tf.ones_like(images), images)
    return tf.where(chance < amount / 2, tf.zeros_like(images), noisy)


def speckle_noise(images, draws, scale):
    """Multiplies by normal noise around 1."""
    return images * draws.normal(images.shape[1:], mean=1.0, scale=scale)
