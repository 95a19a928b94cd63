r"""WRN-10-1 on 10,000 images of CIFAR-10: a network that does not memorise.

python baselines/study.py --config=configs/cifar10_small.py \
      --output_dir=studies/small --objectives=nll,focal,mse --seeds=0,1,2

With augmentation and few epochs, the training images are nearly as new to the
network as test images. A run takes minutes on one core.
"""

from caltrain_tf.experiments import config as base


def get_config():
    """Returns all settings of an experiment."""
    config = base.get_config()
    config.model = "wrn-10-1"
    config.data.train_split = "train[:10000]"
    config.batch_size = 64
    config.epochs = 5
    config.optimizer.decay_epochs = (3, 4)
    config.evaluate_every = 5
    config.keep_checkpoints = 2
    # On a CPU, oneDNN's convolutions are faster than XLA's.
    config.jit_compile = False

    # As many as two cores train in half an hour.
    config.search.threshold = (0.3, 0.7)
    config.search.temperature = (0.01, 0.1)
    config.search.beta = (0.3, 1.0, 3.0)
    config.search.l2 = (2e-4,)
    return config
