r"""WRN-28-10 on CIFAR-10: the recipe of the paper and of Uncertainty Baselines.

  python baselines/cifar/train.py --config=configs/cifar10.py \
      --primary=focal --secondary=sb_ece --tpu=local

Batch 512 (8 cores x 64), SGD with Nesterov momentum 0.9, learning rate
0.1 x 512 / 128 after one epoch of warm-up, multiplied by 0.2 at epochs 60, 120
and 160 of 200, l2 2e-4. The paper reports 95.1% accuracy and an ECE of 1.19%
for focal + SB-ECE.
"""

from caltrain_tf.experiments import config as base


def get_config():
    """Returns all settings of an experiment."""
    config = base.get_config()
    config.data.name = "cifar10"
    config.model = "wrn-28-10"
    config.batch_size = 512
    config.epochs = 200
    # For a batch of 128; it grows with the batch.
    config.optimizer.learning_rate = 0.1
    config.optimizer.reference_batch_size = 128
    config.optimizer.warmup_epochs = 1
    config.optimizer.decay_epochs = (60, 120, 160)
    config.optimizer.decay_ratio = 0.2
    config.optimizer.l2 = 2e-4
    return config
