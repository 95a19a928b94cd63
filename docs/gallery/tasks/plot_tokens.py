"""
The tokens of a small language model
====================================

A language model predicts the next token at every position: the logits have the
shape ``(batch, time, vocabulary)``. Padding has no label and is left out by
``ignore_class``, or by the mask of an ``Embedding`` layer.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# A language with known probabilities
# -----------------------------------
#
# Each token depends on the two tokens before it, according to a table of
# probabilities. Texts have different lengths and are padded with 0.

rng = np.random.default_rng(0)
VOCABULARY = 12
LENGTH = 24
PADDING = 0
# Token 0 is the padding, and never follows anything.
table = rng.dirichlet(np.full(VOCABULARY - 1, 0.3), (VOCABULARY, VOCABULARY))


def draw(num_texts):
    """Returns padded texts; the next token is the label."""
    texts = np.zeros((num_texts, LENGTH + 1), "int32")
    texts[:, :2] = rng.integers(1, VOCABULARY, (num_texts, 2))
    for time in range(2, LENGTH + 1):
        cumulative = table[texts[:, time - 2], texts[:, time - 1]].cumsum(1)
        chosen = rng.uniform(size=(num_texts, 1)) > cumulative
        texts[:, time] = 1 + np.minimum(chosen.sum(1), VOCABULARY - 2)
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, num_texts)
    texts[np.arange(LENGTH + 1) > lengths[:, None]] = PADDING
    return texts[:, :-1], texts[:, 1:]


x_train, y_train = draw(96)
x_calibration, y_calibration = draw(128)
x_test, y_test = draw(512)

# %%
# The model
# ---------
#
# At every position, the embeddings of the last two tokens go through the same
# two dense layers.

keras.utils.set_random_seed(0)
tokens = keras.layers.Input((LENGTH,), dtype="int32")
hidden = keras.layers.Embedding(VOCABULARY, 32)(tokens)
hidden = keras.layers.Conv1D(128, 2, padding="causal", activation="relu")(
    hidden
)
hidden = keras.layers.Dense(128, "relu")(hidden)
model = keras.Model(tokens, keras.layers.Dense(VOCABULARY)(hidden))
model.compile(
    keras.optimizers.Adam(5e-3),
    ct.losses.NLL(from_logits=True, ignore_class=PADDING),
    metrics=[
        ct.metrics.ExpectedCalibrationError(
            from_logits=True, ignore_class=PADDING
        )
    ],
    jit_compile=False,
)
history = model.fit(
    x_train,
    y_train,
    batch_size=32,
    epochs=25,
    validation_data=(x_test, y_test),
    validation_batch_size=256,
    verbose=0,
)

# %%
# The model memorises its 96 texts, and becomes over-confident on others:

figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.plot(100 * np.array(history.history["ece"]), label="training")
ax.plot(100 * np.array(history.history["val_ece"]), label="test")
ax.set(xlabel="epoch", ylabel="ECE of the tokens (%)", ylim=(0, None))
ax.legend()

# %%
# Calibrate the tokens
# --------------------

scaler = ct.posthoc.TemperatureScaling(ignore_class=PADDING).fit(
    model.predict(x_calibration, verbose=0), y_calibration
)
print(scaler)
logits = model.predict(x_test, verbose=0)
for name, metric in (
    ("ECE", ct.metrics.calibration_error),
    ("NLL", ct.metrics.negative_log_likelihood),
):
    before, after = (
        metric(values, y_test, from_logits=True, ignore_class=PADDING)
        for values in (logits, scaler.transform(logits))
    )
    print(f"{name}: {before:.4f}, after TS {after:.4f}")

# %%
# The temperature can be appended to the model, which then uses it for sampling:

calibrated = scaler.append_to(model)
print(calibrated.layers[-1], calibrated.output_shape)
