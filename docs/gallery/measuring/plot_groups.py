"""
Calibration of groups
=====================

A network that is calibrated overall can be over-confident for one group and
under-confident for another. ``ct.metrics.groupwise`` measures this, and
``ct.losses.Groupwise`` is a loss that reduces it.
"""

import keras
import numpy as np

import caltrain_tf as ct

# %%
# Two groups
# ----------
#
# Group B has a fifth of the examples, and its inputs are noisier. The last
# input is a noisy indicator of the group.

rng = np.random.default_rng(0)
centres = rng.normal(size=(5, 10))


def draw(num_examples):
    """Returns inputs, labels and groups."""
    labels = rng.integers(0, 5, num_examples)
    groups = (rng.uniform(size=num_examples) < 0.2).astype(int)
    noise = np.where(groups == 1, 2.0, 1.0)[:, None]
    x = centres[labels] + noise * rng.normal(size=(num_examples, 10))
    hint = 3 * groups + rng.normal(size=num_examples)
    x = np.concatenate([x, hint[:, None]], axis=1)
    return x.astype("float32"), labels, groups


x_train, y_train, groups_train = draw(4000)
x_test, y_test, groups_test = draw(10_000)
names = np.array(["A", "B"])[groups_test]


def train(loss, labels):
    """Returns the logits of the test set after training with `loss`."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((11,)),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(5),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3), loss, jit_compile=False)
    model.fit(x_train, labels, batch_size=500, epochs=30, verbose=0)
    return model.predict(x_test, verbose=0)


# %%
# The overall error is smaller than that of each group
# ----------------------------------------------------

loss = ct.CompositeLoss("focal", "sb_ece", beta=1.0, from_logits=True)
logits = train(loss, y_train)
print(
    ct.metrics.groupwise(
        ct.metrics.calibration_error, logits, y_test, names, from_logits=True
    )
)

# %%
# The network is under-confident for A and over-confident for B:

ct.figures.reliability_diagrams(
    {name: (logits[names == name], y_test[names == name]) for name in "AB"},
    from_logits=True,
)

# %%
# A loss for each group
# ---------------------
#
# ``Groupwise`` computes the calibration loss of each group and takes the mean
# over groups, however few examples a group has. The labels get a second column
# with the group. At test time the groups are not needed.

loss = ct.CompositeLoss(
    "focal",
    ct.losses.Groupwise("sb_ece", num_groups=2, from_logits=True),
    beta=3.0,
    from_logits=True,
)
grouped = train(loss, np.stack([y_train, groups_train], axis=1))
print(
    ct.metrics.groupwise(
        ct.metrics.calibration_error, grouped, y_test, names, from_logits=True
    )
)

# %%
# The error of the worst group and the gap are smaller, and the overall error is
# larger. How far a gap can be closed depends on how well the network can
# recognise the group. Measure the errors with intervals: small groups have
# large errors by chance alone.

for group in "AB":
    chosen = names == group
    value, (low, high) = ct.metrics.bootstrap(
        ct.metrics.calibration_error,
        grouped[chosen],
        y_test[chosen],
        num_samples=100,
        from_logits=True,
    )
    print(f"{group}: {value:.3f} [{low:.3f}, {high:.3f}]")
