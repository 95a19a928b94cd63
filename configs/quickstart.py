r"""WRN-10-1 on the embedded handwritten digits; takes a minute on two cores.

python baselines/cifar/train.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece
"""

from caltrain_tf.experiments import config as base


def get_config():
    """Returns all settings of an experiment."""
    config = base.get_config()
    config.data.name = "digits"
    # The digits are centred; shifted ones take more epochs to learn.
    config.data.augment = False
    config.model = "wrn-10-1"
    config.batch_size = 32
    config.epochs = 12
    # With 25 steps per epoch, the statistics of batch normalisation follow the
    # weights only where these change slowly; otherwise the accuracy on new
    # images drops for an epoch or two. Hence the long warm-up, the early decay
    # and the clipped gradients.
    config.optimizer.learning_rate = 0.2
    config.optimizer.warmup_epochs = 2
    config.optimizer.decay_epochs = (5, 7, 9, 11)
    config.optimizer.decay_ratio = 0.4
    config.optimizer.clip_norm = 3.0
    config.evaluate_every = 2
    config.steps_per_execution = 5
    # On a CPU, oneDNN's convolutions are faster than XLA's.
    config.jit_compile = False

    # Chosen by `baselines/tune.py` among the values of `config.search`, on
    # the calibration split, with one seed: for focal + SB-ECE its temperature,
    # then beta; with this beta, for focal + S-AvUC its threshold, then its
    # temperature.
    config.loss.beta = 3.0
    config.loss.options.sb_ece.temperature = 0.1
    config.loss.options.s_avuc.threshold = 0.3
    config.loss.options.s_avuc.temperature = 0.3

    config.search.threshold = (0.3, 0.5, 0.7)
    config.search.temperature = (0.03, 0.1, 0.3)
    config.search.beta = (1.0, 3.0, 5.0)
    config.search.l2 = (2e-4,)
    return config
