"""
Selective prediction
====================

A network that may abstain answers the examples for which it is most confident,
and passes the others to a person. The risk-coverage curve shows the share of
mistakes for each share of answered examples.
"""

import keras
import numpy as np

import caltrain_tf as ct

# %%
# Two networks
# ------------
#
# These are the same network after 5 epochs and after 40 epochs, when it has
# memorised its training set.

rng = np.random.default_rng(0)
centres = rng.normal(size=(10, 20))


def draw(num_examples):
    """Returns examples around the centres of their classes."""
    labels = rng.integers(0, 10, num_examples)
    x = centres[labels] + 2 * rng.normal(size=(num_examples, 20))
    return x.astype("float32"), labels


x_train, y_train = draw(1000)
x_val, y_val = draw(2000)
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
outputs = {}
for epochs, name in ((5, "5 epochs"), (35, "40 epochs")):
    model.fit(x_train, y_train, batch_size=64, epochs=epochs, verbose=0)
    outputs[name] = {
        "val": model.predict(x_val, verbose=0),
        "test": model.predict(x_test, verbose=0),
    }

# %%
# Risk and coverage
# -----------------
#
# The area under the curve (AURC) summarises it in one number; lower is better.
# ``coverage_at_risk`` is the share of examples that can be answered with a
# given share of mistakes.

for name, logits in outputs.items():
    accuracy = ct.metrics.accuracy(logits["test"], y_test, from_logits=True)
    aurc = ct.metrics.aurc(logits["test"], y_test, from_logits=True)
    coverage = ct.metrics.coverage_at_risk(
        logits["test"], y_test, risk=0.1, from_logits=True
    )
    print(
        f"{name:>9}: accuracy {accuracy:.1%}, AURC {aurc:.3f}, "
        f"answers {coverage:.1%} with 10% mistakes"
    )

# %%
figure = ct.figures.risk_coverage(
    outputs["5 epochs"]["test"], y_test, from_logits=True, label="5 epochs"
)
ct.figures.risk_coverage(
    outputs["40 epochs"]["test"],
    y_test,
    from_logits=True,
    ax=figure.axes[0],
    label="40 epochs",
)

# %%
# Choose the threshold
# --------------------
#
# The curve of the validation set contains the thresholds. Choose the one whose
# risk is acceptable, and use it on new examples:

logits = outputs["5 epochs"]
curve = ct.metrics.risk_coverage_curve(logits["val"], y_val, from_logits=True)
threshold = curve.threshold[np.flatnonzero(curve.risk <= 0.1)[-1]]
confidence = np.asarray(keras.ops.softmax(logits["test"])).max(axis=1)
answered = confidence >= threshold
mistakes = logits["test"].argmax(axis=1)[answered] != y_test[answered]
print(
    f"above a confidence of {threshold:.3f}: {answered.mean():.1%} answered, "
    f"{mistakes.mean():.1%} of them wrong"
)

# %%
# A single temperature hardly changes the order of confidences, and so hardly
# changes this curve. Calibration says what a confidence means; refinement says
# how well it separates right from wrong predictions. Both are needed.
