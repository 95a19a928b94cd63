"""An experiment from its configuration: what the scripts share."""

from caltrain_tf.experiments.train import train

__all__ = ["train"]
