"""An experiment from its configuration: what the scripts share."""

from caltrain_tf.experiments.flags import run_from_flags
from caltrain_tf.experiments.train import train

__all__ = ["run_from_flags", "train"]
