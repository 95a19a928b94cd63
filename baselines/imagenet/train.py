r"""Trains ResNet-50 on ImageNet.

python baselines/imagenet/train.py --primary=nll --secondary=s_avuc --tpu=local
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import flags  # noqa: E402

flags.define_training("imagenet.py")
FLAGS = flags.FLAGS


def train(config, folder):
    """Trains, calibrates and measures a network; returns its results."""
    from caltrain_tf.experiments import build, experiment, measures

    # Each host decodes and crops its share of a batch; 98% of the training set
    # train, 2% calibrate, the validation set tests.
    strategy = flags.strategy()
    data = build.data(config, FLAGS.data_dir)
    batches = build.training_input(config, data)
    splits = build.evaluation_input(config, data)

    # ResNet-50 in bfloat16, trained by SGD with Nesterov momentum, five epochs
    # of warm-up and three decays; l2 on kernels and biases.
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
