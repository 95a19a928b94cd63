"""
The Trainer with a strategy
===========================

``Trainer`` is a training loop for any ``tf.distribute`` strategy: a CPU, the
GPUs of a machine, TPUs, or several machines. The loss is that of the global
batch, so that eight replicas with a batch of 64 train like one replica with a
batch of 512.
"""

import pathlib
import tempfile

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import caltrain_tf as ct

# %%
# Strategy, model and data
# ------------------------
#
# Without arguments, ``get_strategy`` uses all GPUs of this machine, or its CPU
# if there is none. Create the model and the optimizer in the strategy's scope.

strategy = ct.training.get_strategy()
print("replicas:", strategy.num_replicas_in_sync)

rng = np.random.default_rng(0)
centres = rng.normal(size=(10, 20))


def draw(num_examples):
    """Returns examples around the centres of their classes."""
    labels = rng.integers(0, 10, num_examples)
    x = centres[labels] + 2 * rng.normal(size=(num_examples, 20))
    return x.astype("float32"), labels


train = tf.data.Dataset.from_tensor_slices(draw(2048))
calibration = tf.data.Dataset.from_tensor_slices(draw(1000)).batch(256)
test = tf.data.Dataset.from_tensor_slices(draw(2000)).batch(256)


def epoch_data(epoch):
    """Returns the batches of an epoch: a function of the epoch alone."""
    return train.shuffle(2048, seed=epoch).batch(128, drop_remainder=True)


keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Input((20,)),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(
        ct.training.WarmUpStepDecay(
            0.03,
            steps_per_epoch=16,
            decay_ratio=0.2,
            decay_epochs=[6, 8],
            warmup_epochs=1,
        ),
        momentum=0.9,
        nesterov=True,
    )

# %%
# Train
# -----
#
# ``cross_replica=True`` computes the calibration error of the global batch.
# With ``run``, the loop writes checkpoints, a log and TensorBoard events into a
# folder, and the same program resumes after it was killed. The folder may be in
# a bucket, ``gs://...``.

trainer = ct.training.Trainer(
    model,
    ct.CompositeLoss("focal", "sb_ece", from_logits=True, cross_replica=True),
    optimizer,
    strategy,
    metrics=[
        keras.metrics.SparseCategoricalAccuracy("accuracy"),
        ct.metrics.ExpectedCalibrationError(from_logits=True),
    ],
    l2=2e-4,
    jit_compile=False,
)
folder = pathlib.Path(tempfile.mkdtemp()) / "run"
rows = trainer.fit(
    epoch_data,
    epochs=8,
    dataset_steps=16,
    evaluations={"calibration": calibration},
    run=folder,
    config={"loss": "focal+sb_ece", "l2": 2e-4},
    verbose=False,
)
print(sorted(path.name for path in folder.iterdir()))

# %%
# ``rows`` has the content of ``metrics.jsonl``, one dictionary per epoch:

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for ax, names in (
    (axes[0], ("train/primary_loss", "train/secondary_loss")),
    (axes[1], ("train/ece", "calibration/ece")),
):
    for name in names:
        ax.plot(
            [row["epoch"] for row in rows],
            [row[name] for row in rows],
            label=name,
        )
    ax.set(xlabel="epoch", ylim=(0, None))
    ax.legend()

# %%
# Evaluate and calibrate
# ----------------------
#
# ``evaluate`` counts every example once, on any number of replicas.
# ``predict`` returns the outputs in the order of the data.

print({name: round(value, 4) for name, value in trainer.evaluate(test).items()})

logits, labels = trainer.predict(calibration, with_labels=True)
scaler = ct.posthoc.TemperatureScaling("sb_ece").fit(logits, labels)
logits, labels = trainer.predict(test, with_labels=True)
print(scaler)
print(
    ct.metrics.calibration_error(logits, labels, from_logits=True),
    ct.metrics.calibration_error(scaler.predict_proba(logits), labels),
)
