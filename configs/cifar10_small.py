r"""WRN-10-1 on 10,000 images of CIFAR-10: a network that does not memorise.

python baselines/study.py --config=configs/cifar10_small.py \
      --output_dir=studies/small --objectives=nll,focal,mse --seeds=0,1,2

With augmentation and few epochs, the training images are nearly as new to the
network as test images. A run takes minutes on one core.
"""

import pathlib
import runpy


def get_config():
    """Returns all settings of an experiment."""
    base = runpy.run_path(
        pathlib.Path(__file__).with_name("cifar10_memorising.py")
    )
    config = base["get_config"]()
    config.data.train_split = "train[:10000]"
    config.data.augment = True
    config.epochs = 5
    config.optimizer.decay_epochs = (3, 4)
    config.evaluate_every = 5
    return config
