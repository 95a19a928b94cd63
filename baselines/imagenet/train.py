r"""Trains on ImageNet.

python baselines/imagenet/train.py --primary=nll --secondary=s_avuc --tpu=local
"""

import pathlib

from absl import app

from caltrain_tf.experiments import run_from_flags
from caltrain_tf.experiments.flags import define

CONFIG = define(pathlib.Path(__file__).parents[2] / "configs" / "imagenet.py")

if __name__ == "__main__":
    app.run(lambda argv: run_from_flags(CONFIG, argv))
