r"""Trains on ImageNet.

python baselines/imagenet/train.py --primary=nll --secondary=s_avuc --tpu=local
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app  # noqa: E402

from caltrain_tf.experiments import run_from_flags  # noqa: E402
from caltrain_tf.experiments.flags import define  # noqa: E402

CONFIG = define(pathlib.Path(__file__).parents[2] / "configs" / "imagenet.py")

if __name__ == "__main__":
    app.run(lambda argv: run_from_flags(CONFIG, argv))
