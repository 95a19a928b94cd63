"""
Conformal prediction sets
=========================

Instead of one class, a conformal predictor returns a set of classes that
contains the label with a probability of your choice, such as 90%. The guarantee
does not need a calibrated network, only examples that the network was not
trained on. A better network has smaller sets.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# A network and its outputs
# -------------------------

rng = np.random.default_rng(0)
centres = rng.normal(size=(10, 20))


def draw(num_examples):
    """Returns examples around the centres of their classes."""
    labels = rng.integers(0, 10, num_examples)
    x = centres[labels] + 2 * rng.normal(size=(num_examples, 20))
    return x.astype("float32"), labels


x_train, y_train = draw(2000)
x_calibration, y_calibration = draw(2000)
x_test, y_test = draw(5000)

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((20,)),
        keras.layers.Dense(128, "relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(
    keras.optimizers.Adam(3e-3),
    ct.losses.NLL(from_logits=True),
    jit_compile=False,
)
model.fit(x_train, y_train, batch_size=128, epochs=10, verbose=0)
calibration_logits = model.predict(x_calibration, verbose=0)
test_logits = model.predict(x_test, verbose=0)

# %%
# Three kinds of sets
# -------------------
#
# ``"thr"`` has the smallest sets, ``"aps"`` has larger sets for difficult
# examples, and ``"raps"`` keeps unlikely classes out of the sets.

print("method  coverage  mean size")
for method in ("thr", "aps", "raps"):
    conformal = ct.posthoc.ConformalSets(method, alpha=0.1)
    conformal.fit(calibration_logits, y_calibration)
    sets = conformal.predict_set(test_logits)
    coverage = ct.metrics.coverage(sets, y_test)
    size = ct.metrics.set_size(sets)
    print(f"{method:>6} {coverage:9.2%} {size:10.2f}")

# %%
# Choose the coverage
# -------------------
#
# The coverage equals the requested coverage, up to the noise of 2,000
# calibration examples. A higher coverage needs larger sets.

alphas = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3])
coverages, sizes = [], []
for alpha in alphas:
    conformal = ct.posthoc.ConformalSets("thr", alpha=alpha)
    sets = conformal.fit(calibration_logits, y_calibration).predict_set(
        test_logits
    )
    coverages.append(ct.metrics.coverage(sets, y_test))
    sizes.append(ct.metrics.set_size(sets))

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
axes[0].plot([0.7, 1], [0.7, 1], "k--", linewidth=1)
axes[0].plot(1 - alphas, coverages, "o")
axes[0].set(xlabel="asked for", ylabel="coverage of the test set")
axes[1].plot(1 - alphas, sizes, "o-")
axes[1].set(xlabel="asked for", ylabel="mean size of a set")

# %%
# Difficult examples have larger sets
# -----------------------------------
#
# The accuracy of the network by the size of the set:

conformal = ct.posthoc.ConformalSets("aps", alpha=0.1)
sets = conformal.fit(calibration_logits, y_calibration).predict_set(test_logits)
sizes = sets.sum(axis=1)
correct = test_logits.argmax(axis=1) == y_test
for size in range(1, 7):
    chosen = sizes == size
    print(
        f"sets of {size}: {chosen.mean():6.1%} of the examples, "
        f"accuracy {correct[chosen].mean():.1%}"
    )

# %%
# The sets as a model
# -------------------
#
# ``append_to`` returns a Keras model whose outputs are booleans.

predictor = ct.posthoc.ConformalSets("thr", alpha=0.1)
predictor.fit(calibration_logits, y_calibration)
print(predictor.append_to(model)(x_test[:2]))
