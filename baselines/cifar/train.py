r"""Trains on CIFAR-10, CIFAR-100 or the embedded digits.

python baselines/cifar/train.py --primary=focal --secondary=sb_ece --tpu=local
python baselines/cifar/train.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app  # noqa: E402

from caltrain_tf.experiments import run_from_flags  # noqa: E402
from caltrain_tf.experiments.flags import define  # noqa: E402

CONFIG = define(pathlib.Path(__file__).parents[2] / "configs" / "cifar10.py")

if __name__ == "__main__":
    app.run(lambda argv: run_from_flags(CONFIG, argv))
