"""Data sets as batches of images and labels, and their corruptions."""

from caltrain_tf.data import corruptions
from caltrain_tf.data.array_data import ArrayData
from caltrain_tf.data.image_data import ImageData
from caltrain_tf.data.registry import get
from caltrain_tf.data.shifted_sets import GeneratedSets
from caltrain_tf.data.shifted_sets import shifted_sets
from caltrain_tf.data.specs import SPECS
from caltrain_tf.data.stored_sets import PublishedArrays
from caltrain_tf.data.stored_sets import StoredSets

__all__ = [
    "SPECS",
    "ArrayData",
    "GeneratedSets",
    "ImageData",
    "PublishedArrays",
    "StoredSets",
    "corruptions",
    "get",
    "shifted_sets",
]
