"""Data sets as batches of images and labels, and corrupted test sets."""

from caltrain_tf.data import corruptions
from caltrain_tf.data.datasets import SPECS, ArrayData, get
from caltrain_tf.data.pipeline import ImageData
from caltrain_tf.data.shifted import GeneratedSets, shifted_sets

__all__ = [
    "SPECS",
    "ArrayData",
    "GeneratedSets",
    "ImageData",
    "corruptions",
    "get",
    "shifted_sets",
]
