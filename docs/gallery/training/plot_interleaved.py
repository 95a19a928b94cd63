"""
Interleaved training
====================

A calibration loss moves confidences to where the *training* set wants them. On
a training set that the network has memorised, where nearly every prediction is
right, that is the wrong way: the network becomes more confident, on the test
set too. Interleaved training computes the calibration loss on a part of the
training set that the other loss never sees.
"""

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct

# %%
# Small data, many epochs
# -----------------------
#
# Ten overlapping clusters, 1,000 training examples, and enough epochs to learn
# them by heart.

rng = np.random.default_rng(0)
centres = rng.normal(size=(10, 20))


def draw(num_examples):
    """Returns examples around the centres of their classes."""
    labels = rng.integers(0, 10, num_examples)
    x = centres[labels] + 2 * rng.normal(size=(num_examples, 20))
    return x.astype("float32"), labels


x_train, y_train = draw(1000)
x_test, y_test = draw(5000)


def network():
    """Returns a new network with the same initial weights."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input((20,)),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(10),
        ]
    )


def optimizer():
    """Returns a new optimizer."""
    return keras.optimizers.Adam(1e-3)


outputs = {}


def describe(name, model):
    """Prints the calibration error of both sets."""
    outputs[name] = model.predict(x_test, verbose=0), y_test
    values = []
    for x, y in ((x_train, y_train), (x_test, y_test)):
        logits = model.predict(x, verbose=0)
        values.append(ct.metrics.calibration_error(logits, y, from_logits=True))
        values.append(ct.metrics.accuracy(logits, y, from_logits=True))
    print(
        "{:>28}: train ECE {:6.2%}, accuracy {:6.2%}; "
        "test ECE {:6.2%}, accuracy {:6.2%}".format(name, *values)
    )


# %%
# The calibration loss on the training set itself
# -----------------------------------------------

EPOCHS = 40
for name, loss in {
    "focal": ct.losses.Focal(from_logits=True),
    "focal + SB-ECE": ct.CompositeLoss("focal", "sb_ece", from_logits=True),
}.items():
    model = network()
    model.compile(optimizer(), loss, jit_compile=False)
    model.fit(x_train, y_train, batch_size=64, epochs=EPOCHS, verbose=0)
    describe(name, model)

# %%
# SB-ECE lowers the training error, as it should, and raises the test error.
#
# The calibration loss on held-out examples
# -----------------------------------------
#
# A fifth of the training set is set aside. In every epoch,
# ``InterleavedModel`` first takes the compiled loss on the majority, then the
# calibration loss on the rest. There is only one step of it in each epoch, so
# ``beta`` is large: a ``CompositeLoss`` without a primary part has one.

dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
majority = dataset.take(800).shuffle(800, seed=1).batch(64)
held_out = dataset.skip(800).batch(200)

model = network()
interleaved = ct.training.InterleavedModel(
    model,
    calibration_loss=ct.CompositeLoss(
        None, "sb_ece", beta=10.0, from_logits=True
    ),
)
interleaved.compile(
    optimizer(), ct.losses.Focal(from_logits=True), jit_compile=False
)
history = interleaved.fit(
    ct.training.interleave(majority, held_out),
    epochs=EPOCHS,
    shuffle=False,
    verbose=0,
)
describe("focal, SB-ECE interleaved", model)

# %%
# The reliability diagrams of the test set:

ct.figures.reliability_diagrams(outputs, from_logits=True)

# %%
# The weights are those of ``model``, which is saved and used as any other.
#
# To see whether a network needs this, compare its calibration error on the
# training set and on other data: :func:`caltrain_tf.training.warn_if_memorised`
# does so.
