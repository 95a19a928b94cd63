r"""A head on embeddings, which `baselines/embed.py` writes; half a minute.

python baselines/cifar/train.py --config=configs/embeddings.py \
      --config.data.name=npz:embeddings/cifar10 --primary=nll --secondary=sb_ece
"""

from caltrain_tf.experiments import config as base


def get_config():
    """Returns all settings of an experiment."""
    config = base.get_config()
    config.data.name = "npz:embeddings/cifar10"
    config.model = "mlp-512"
    config.batch_size = 512
    config.epochs = 15
    config.optimizer.learning_rate = 0.1
    config.optimizer.reference_batch_size = 512
    config.optimizer.warmup_epochs = 1
    config.optimizer.decay_epochs = (8, 12)
    config.optimizer.decay_ratio = 0.2
    config.optimizer.l2 = 0.0
    config.evaluate_every = 5
    config.search.l2 = ()
    return config
