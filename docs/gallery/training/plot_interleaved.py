"""
Interleaved training
====================

A calibration loss moves confidences towards the accuracy on the *training* set.
If the network has memorised its training set, nearly every prediction there is
right, and this is the wrong direction: the network becomes more confident, also
on the test set. Interleaved training computes the calibration loss on a part of
the training set that the primary loss never sees.
"""

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct

# %%
# Small data, many epochs
# -----------------------
#
# The data are ten overlapping clusters with 1,000 training examples. The
# network is trained for enough epochs to memorise them.

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
    "focal + SB-ECE": ct.CompositeLoss(
        "focal", "sb_ece", beta=1.0, from_logits=True
    ),
}.items():
    model = network()
    model.compile(optimizer(), loss, jit_compile=False)
    model.fit(x_train, y_train, batch_size=64, epochs=EPOCHS, verbose=0)
    describe(name, model)

# %%
# SB-ECE lowers the training ECE, as it should, and raises the test ECE.
#
# The calibration loss on held-out examples
# -----------------------------------------
#
# A fifth of the training set is held out. In every epoch, ``InterleavedModel``
# first minimises the compiled loss on the majority, then the calibration loss
# on the held-out part. Only one step of each epoch uses the calibration loss,
# so ``beta`` is large; ``CompositeLoss`` without a primary loss provides it.

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
# The trained weights are those of ``model``, which is saved and used as any
# other model.
#
# To see whether a network needs interleaved training, compare its calibration
# error on the training set with that on other data, as
# :func:`caltrain_tf.training.warn_if_memorised` does.
