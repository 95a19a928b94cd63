r"""Trains on CIFAR-10, CIFAR-100 or the embedded digits.

python baselines/cifar/train.py --primary=focal --secondary=sb_ece --tpu=local
python baselines/cifar/train.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import command_line  # noqa: E402

CONFIG = command_line.define_training("cifar10.py")

if __name__ == "__main__":
    command_line.run(lambda _: command_line.train(CONFIG))
