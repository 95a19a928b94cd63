"""Prints every loss's value and gradient on the backend of KERAS_BACKEND."""

import json
import sys

import keras
import numpy as np

import caltrain_tf as ct
from tests.losses.cases import BRANCHES, PRIMARY, SECONDARY, batch


def value_and_gradient(function, logits):
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.jit(jax.value_and_grad(function))(logits)
    if backend == "torch":
        import torch

        tensor = torch.tensor(logits, requires_grad=True)
        value = function(tensor)
        value.backward()
        return value.detach(), tensor.grad
    import tensorflow as tf

    tensor = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        value = function(tensor)
    return value, tape.gradient(value, tensor)


def all_values():
    """A list of `[name, options, value, gradient]`."""
    labels, logits = batch(33, 4, seed=5)
    logits[7] = logits[8]  # A tie.
    weight = np.linspace(0, 2, 33).astype("float32")
    rows = []
    for name, options in BRANCHES:
        function, _ = {**PRIMARY, **SECONDARY}[name]
        if name in SECONDARY:
            options = {**options, "sample_weight": weight}
        value, gradient = value_and_gradient(
            lambda x, f=function, o=options: keras.ops.sum(
                f(labels, x, from_logits=True, **o)
            ),
            logits,
        )
        options = {k: v for k, v in options.items() if k != "sample_weight"}
        rows.append(
            [name, options, float(value), np.asarray(gradient).tolist()]
        )
    # What takes other labels than class ids.
    soft = np.random.default_rng(0).dirichlet(np.ones(4), 33).astype("float32")
    both = np.stack([labels, np.arange(33) % 3], axis=1)
    groupwise = ct.losses.Groupwise("sb_ece", 4, from_logits=True)
    for name, function in (
        ("dual_focal, soft", lambda x: ct.losses.DualFocal(5.0, True)(soft, x)),
        ("mdca, soft", lambda x: ct.losses.MDCA(True)(soft, x)),
        ("groupwise", lambda x: groupwise(both, x)),
    ):
        value, gradient = value_and_gradient(function, logits)
        rows.append([name, {}, float(value), np.asarray(gradient).tolist()])
    return rows


def mmce_hessian():
    """Of the value in five logits, or None where this has no way to it."""
    if keras.backend.backend() != "jax":
        return None
    import jax

    labels, logits = batch(5, 3, seed=7)
    hessian = jax.hessian(
        lambda x: ct.losses.mmce(
            labels,
            keras.ops.concatenate([x[:, None], logits[:, 1:]], axis=1),
            from_logits=True,
        )
    )
    return np.asarray(hessian(logits[:, 0])).tolist()


def fit_history():
    """Losses and parts over three epochs of `fit` from fixed weights."""
    labels, features = batch(48, 4, seed=6)
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(4, "softmax")]
    )
    model.set_weights([np.eye(4), np.zeros(4)])
    loss = ct.CompositeLoss("focal", "mmce", beta=2.0)
    model.compile("sgd", loss, metrics=loss.part_metrics())
    return model.fit(
        features, labels, batch_size=16, epochs=3, shuffle=False, verbose=0
    ).history


if __name__ == "__main__":
    json.dump([all_values(), fit_history(), mmce_hessian()], sys.stdout)
