r"""Trains a Wide ResNet on CIFAR-10, CIFAR-100 or the embedded digits.

python baselines/cifar/train.py --primary=focal --secondary=sb_ece --tpu=local
python baselines/cifar/train.py --config=configs/quickstart.py \
      --primary=focal --secondary=sb_ece
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import flags  # noqa: E402

flags.define_training("cifar10.py")
FLAGS = flags.FLAGS


def train(config, folder):
    """Trains, calibrates and measures a network; returns its results."""
    from caltrain_tf.experiments import build, experiment, measures

    # 8 x 64 images a step on a TPU; 45,000 to train, 5,000 to calibrate,
    # 10,000 to test.
    strategy = flags.strategy()
    data = build.data(config, FLAGS.data_dir)
    batches = build.training_input(config, data)
    splits = build.evaluation_input(config, data)

    # WRN-28-10, trained by SGD with Nesterov momentum, one epoch of warm-up and
    # three decays; l2 on every weight.
    loss = build.loss(config)  # primary + beta * secondary
    with strategy.scope():
        model = build.model(config, data, config.init_from)
        optimizer = build.optimizer(config, batches)
    trainer = build.trainer(config, model, loss, optimizer, strategy)
    options = build.fit_options(config)

    with experiment.open_folder(folder, config, strategy, FLAGS.resume) as run:
        history = trainer.fit(**batches, evaluations=splits, run=run, **options)
        epoch = experiment.chosen_epoch(trainer, config, run, history)
        splits |= build.training_images(config, data)
        predictions = experiment.predict(trainer, splits)
        # Temperatures are fitted to the calibration split alone.
        scalers = measures.fit_calibrators(*predictions["calibration"])
        results = experiment.final_results(config, epoch, predictions, scalers)
        if run.chief:
            network = build.copy_of(model, config, data)
            experiment.write(run, epoch, predictions, scalers, results, network)
    return results


if __name__ == "__main__":
    flags.run_training(train)
