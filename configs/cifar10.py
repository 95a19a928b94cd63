r"""WRN-28-10 on CIFAR-10: the recipe of the paper and of Uncertainty Baselines.

  python baselines/cifar/train.py --config=configs/cifar10.py \
      --primary=focal --secondary=sb_ece --tpu=local

Batch 512 (8 cores x 64), SGD with Nesterov momentum 0.9, learning rate
0.1 x 512 / 128 after one epoch of warm-up, multiplied by 0.2 at epochs 60, 120
and 160 of 200, l2 2e-4. The paper reports 95.1% accuracy and an ECE of 1.19%
for focal + SB-ECE.
"""

import ml_collections
from ml_collections.config_dict import placeholder


def get_config():
    """Returns all settings of an experiment."""
    config = ml_collections.ConfigDict()
    config.seed = 0
    # Also a name of `keras.applications`, or the path of a `.keras` file.
    config.model = "wrn-28-10"
    # A `.keras` file whose weights training starts from.
    config.init_from = placeholder(str)
    config.precision = "float32"
    config.batch_size = 512
    config.epochs = 200

    config.data = ml_collections.ConfigDict()
    config.data.name = "cifar10"
    # In the syntax of TensorFlow Datasets; the data set's own when not given.
    config.data.train_split = placeholder(str)
    config.data.image_size = placeholder(int)
    config.data.augment = True

    config.loss = ml_collections.ConfigDict()
    config.loss.primary = "nll"
    config.loss.secondary = placeholder(str)
    config.loss.beta = 1.0
    config.loss.cross_replica = True
    config.loss.options = {
        "nll": {"label_smoothing": 0.0},
        "focal": {"gamma": 3.0},
        "mse": {},
        "dual_focal": {"gamma": 5.0},
        "bsce_gra": {"gamma": 5.0, "norm": 1.0},
        "sb_ece": {
            "num_bins": 15,
            "temperature": 0.01,
            "norm": 2.0,
            "binning": "label",
            "root": True,
        },
        "s_avuc": {"threshold": 0.5, "temperature": 0.1},
        "avuc": {"threshold": placeholder(float)},
        "avuc_gs": {"threshold": placeholder(float)},
        "mmce": {"width": 0.4, "weighted": False},
        "sb_marginal_ece": {"num_bins": 15, "temperature": 0.01},
        "esd": {},
        "mdca": {},
        "dca": {},
        "mbls": {"margin": 10.0},
        "acls": {"margin": 10.0, "positive": 1.0, "negative": 0.1},
    }

    config.interleaved = ml_collections.ConfigDict()
    config.interleaved.enabled = False
    config.interleaved.held_out_fraction = 0.1

    config.optimizer = ml_collections.ConfigDict()
    # Of a batch of 128; it grows with the batch.
    config.optimizer.learning_rate = 0.1
    config.optimizer.reference_batch_size = 128
    config.optimizer.warmup_epochs = 1
    config.optimizer.decay_epochs = (60, 120, 160)
    config.optimizer.decay_ratio = 0.2
    config.optimizer.momentum = 0.9
    config.optimizer.nesterov = True
    config.optimizer.l2 = 2e-4
    config.optimizer.l2_on = ()  # Empty: every trainable variable.
    config.optimizer.clip_norm = placeholder(float)

    config.steps_per_execution = 50
    config.jit_compile = True
    config.evaluate_every = 5
    # "ts_nll": evaluate every epoch, and end with the weights of the epoch that
    # has the lowest loss on the calibration split after temperature scaling.
    config.best = placeholder(str)
    config.keep_checkpoints = 3
    # Also inside epochs: for epochs that take longer than may be lost.
    config.checkpoint_every_steps = placeholder(int)

    # What `baselines/tune.py` tries, one parameter after the other.
    config.search = ml_collections.ConfigDict()
    config.search.threshold = (0.1, 0.3, 0.5, 0.7, 0.9)
    config.search.temperature = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    config.search.beta = (0.1, 0.3, 1.0, 3.0, 10.0)
    config.search.l2 = (1e-5, 5e-5, 1e-4, 2e-4, 5e-4)
    return config
