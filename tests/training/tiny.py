"""A classification problem and a network that train in moments."""

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct

CLASSES = 3
FEATURES = 5


def arrays(examples=64, seed=0):
    """Clusters, one a class, that overlap."""
    generator = np.random.default_rng(seed)
    labels = np.arange(examples) % CLASSES
    centres = np.random.default_rng(7).normal(size=(CLASSES, FEATURES))
    x = centres[labels] + generator.normal(size=(examples, FEATURES))
    return x.astype("float32"), labels.astype("int64")


def dataset(examples=64, batch=16, seed=0, drop_remainder=True):
    """The problem as batches, in the same order in every epoch."""
    data = tf.data.Dataset.from_tensor_slices(arrays(examples, seed))
    return data.batch(batch, drop_remainder=drop_remainder)


def shuffled(epoch):
    """The problem in an order that is a function of the epoch alone."""
    data = tf.data.Dataset.from_tensor_slices(arrays())
    data = data.shuffle(64, seed=epoch, reshuffle_each_iteration=False)
    return data.batch(16, drop_remainder=True)


def network(normalization=None, dropout=0.0):
    """A network with the same weights at every call."""
    keras.utils.set_random_seed(3)
    layers = [keras.Input([FEATURES]), keras.layers.Dense(8)]
    if normalization is not None:
        layers.append(normalization)
    layers += [keras.layers.ReLU()]
    if dropout:
        layers.append(keras.layers.Dropout(dropout, seed=5))
    layers.append(keras.layers.Dense(CLASSES, dtype="float32"))
    return keras.Sequential(layers)


def composite(secondary="sb_ece", **options):
    """NLL and a calibration loss of the global batch."""
    options = {"from_logits": True, "cross_replica": True, **options}
    return ct.CompositeLoss("nll", secondary, **{"beta": 1.0, **options})


def trainer(strategy=None, make_network=network, loss=None, **options):
    """A trainer of a fresh network, made in the strategy's scope.

    Not compiled by XLA unless a test is about that: it takes a second.
    """
    options = {"jit_compile": False, **options}
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = make_network()
        optimizer = options.pop("optimizer", None)
        optimizer = keras.optimizers.SGD if optimizer is None else optimizer
        optimizer = optimizer(0.1, momentum=0.9)
    loss = loss or composite()
    return ct.training.Trainer(model, loss, optimizer, strategy, **options)


def weights(trained):
    """All variables of the trainer's model as arrays."""
    return [variable.numpy() for variable in trained.model.weights]


def assert_same_weights(one, other, **tolerance):
    """Asserts equality, to the bit unless a tolerance is given."""
    for left, right in zip(weights(one), weights(other), strict=True):
        np.testing.assert_allclose(left, right, **{"rtol": 0, **tolerance})


def at_step(trained, step, action):
    """Has something happen before the first execution from a step on."""
    run_steps = trained._run_steps

    def run_steps_and_act(phase, batches, count, first_step):
        if first_step >= step:
            trained._run_steps = run_steps
            action()
        return run_steps(phase, batches, count, first_step)

    trained._run_steps = run_steps_and_act
