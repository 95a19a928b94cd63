r"""WRN-10-1 on 2,000 images of CIFAR-10: a network that memorises them.

python baselines/study.py --config=configs/cifar10_memorising.py \
      --output_dir=studies/memorising --objectives=nll,focal,mse --seeds=0,1,2

With few images and no augmentation, a small network memorises its training set,
as WRN-28-10 does in 200 epochs: it classifies every training image correctly
and with confidence, but not the test set. A run takes minutes on one core.
"""

from caltrain_tf.experiments import config as base


def get_config():
    """Returns all settings of an experiment."""
    config = base.get_config()
    config.model = "wrn-10-1"
    config.data.train_split = "train[:2000]"
    config.data.augment = False
    config.batch_size = 64
    config.epochs = 40
    config.optimizer.decay_epochs = (28, 36)
    config.evaluate_every = 40
    config.keep_checkpoints = 2
    # On a CPU, oneDNN's convolutions are faster than XLA's.
    config.jit_compile = False

    # As many as two cores train in half an hour.
    config.search.threshold = (0.3, 0.7)
    config.search.temperature = (0.01, 0.1)
    config.search.beta = (0.3, 1.0, 3.0)
    config.search.l2 = (2e-4,)
    return config
