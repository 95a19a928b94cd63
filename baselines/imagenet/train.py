r"""Trains on ImageNet.

python baselines/imagenet/train.py --primary=nll --secondary=s_avuc --tpu=local
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import command_line  # noqa: E402

CONFIG = command_line.define_training("imagenet.py")

if __name__ == "__main__":
    command_line.run(lambda _: command_line.train(CONFIG))
