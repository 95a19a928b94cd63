r"""ResNet-50 on ImageNet: the recipe of the paper and of Uncertainty Baselines.

  python baselines/imagenet/train.py --config=configs/imagenet.py \
      --primary=nll --secondary=s_avuc --tpu=local

Batch 512, learning rate 0.1 x 512 / 256 after five epochs of warm-up,
multiplied by 0.1 at epochs 30, 60 and 80 of 90, l2 1e-4 on kernels and biases,
bfloat16. The paper reports 75.6% accuracy and an ECE of 2.26% for NLL + S-AvUC.
"""

from caltrain_tf.experiments import config as base


def get_config():
    """Returns all settings of an experiment."""
    config = base.get_config()
    config.data.name = "imagenet"
    config.model = "resnet-50"
    config.precision = "mixed_bfloat16"
    config.batch_size = 512
    config.epochs = 90
    config.optimizer.reference_batch_size = 256
    config.optimizer.warmup_epochs = 5
    config.optimizer.decay_epochs = (30, 60, 80)
    config.optimizer.decay_ratio = 0.1
    config.optimizer.l2 = 1e-4
    config.optimizer.l2_on = ("kernel", "bias")
    return config
