"""Experiments from their configurations: the code that the scripts share."""

from caltrain_tf.experiments.train import train

__all__ = ["train"]
