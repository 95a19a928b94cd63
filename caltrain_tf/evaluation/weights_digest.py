"""Which weights a network has, in a few letters."""

import hashlib

import numpy as np


def weights_digest(model):
    """Returns a hash of a network's weights.

    Args:
        model: A Keras model, or anything else with `weights` or `variables`.

    Returns:
        Hexadecimal digits, or None for a function without either.

    Example:
        >>> import tensorflow as tf
        >>> module = tf.Module()
        >>> module.scale = tf.Variable([1.0, 2.0])
        >>> before = weights_digest(module)
        >>> _ = module.scale.assign([1.0, 2.5])
        >>> weights_digest(module) == before
        False
        >>> _ = module.scale.assign([1.0, 2.0])
        >>> weights_digest(module) == before
        True
        >>> print(weights_digest(abs))
        None
    """
    # Of a Keras model, `variables` are also states of random numbers and
    # metrics, which change with every use.
    weights = getattr(model, "weights", getattr(model, "variables", None))
    if weights is None:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for weight in weights:
        values = np.ascontiguousarray(weight.numpy())
        digest.update(f"{values.dtype.name} {values.shape} ".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
