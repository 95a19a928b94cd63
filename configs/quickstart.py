r"""WRN-10-1 on the embedded handwritten digits, in minutes on two cores.

python baselines/cifar/train.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece
"""

import pathlib
import runpy


def get_config():
    """Returns all settings of an experiment."""
    base = runpy.run_path(pathlib.Path(__file__).with_name("cifar10.py"))
    config = base["get_config"]()
    config.data.name = "digits"
    config.model = "wrn-10-1"
    config.batch_size = 64
    config.epochs = 16
    config.optimizer.decay_epochs = (10, 13)
    config.evaluate_every = 2
    config.steps_per_execution = 10
    # On a CPU, oneDNN's convolutions are faster than XLA's.
    config.jit_compile = False
    return config
