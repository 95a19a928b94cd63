"""Data sets as batches of images and labels, and their corruptions."""

from caltrain_tf.data import corruptions
from caltrain_tf.data.image_data import ImageData
from caltrain_tf.data.registry import get
from caltrain_tf.data.specs import SPECS

__all__ = ["SPECS", "ImageData", "corruptions", "get"]
