"""A training loop over any `tf.distribute` strategy."""

from caltrain_tf.training.checkpoints import Preempted
from caltrain_tf.training.checkpoints import restore_model
from caltrain_tf.training.interleaved import InterleavedModel
from caltrain_tf.training.interleaved import interleave
from caltrain_tf.training.interleaved import warn_if_memorised
from caltrain_tf.training.logs import MetricsLog
from caltrain_tf.training.logs import Summaries
from caltrain_tf.training.run_folder import RunFolder
from caltrain_tf.training.run_folder import check_config
from caltrain_tf.training.run_folder import wait_until_free
from caltrain_tf.training.schedule import WarmUpStepDecay
from caltrain_tf.training.strategy import get_strategy
from caltrain_tf.training.strategy import is_chief
from caltrain_tf.training.trainer import NonFiniteLossError
from caltrain_tf.training.trainer import Trainer

__all__ = [
    "InterleavedModel",
    "MetricsLog",
    "NonFiniteLossError",
    "Preempted",
    "RunFolder",
    "Summaries",
    "Trainer",
    "WarmUpStepDecay",
    "check_config",
    "get_strategy",
    "interleave",
    "is_chief",
    "restore_model",
    "wait_until_free",
    "warn_if_memorised",
]
