r"""Trains on CIFAR-10, CIFAR-100 or the embedded digits.

python baselines/cifar/train.py --primary=focal --secondary=sb_ece --tpu=local
python baselines/cifar/train.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece
"""

import pathlib

from absl import app

from caltrain_tf.experiments import run_from_flags
from caltrain_tf.experiments.flags import define

CONFIG = define(pathlib.Path(__file__).parents[2] / "configs" / "cifar10.py")

if __name__ == "__main__":
    app.run(lambda argv: run_from_flags(CONFIG, argv))
