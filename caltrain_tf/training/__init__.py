"""A training loop over any `tf.distribute` strategy."""

from caltrain_tf.interleaved import (
    InterleavedModel,
    interleave,
    warn_if_memorised,
)
from caltrain_tf.training.checkpoints import Preempted, restore_model
from caltrain_tf.training.schedule import WarmUpStepDecay
from caltrain_tf.training.strategy import get_strategy, is_chief
from caltrain_tf.training.trainer import NonFiniteLossError, Trainer

__all__ = [
    "InterleavedModel",
    "NonFiniteLossError",
    "Preempted",
    "Trainer",
    "WarmUpStepDecay",
    "get_strategy",
    "interleave",
    "is_chief",
    "restore_model",
    "warn_if_memorised",
]
