"""Prints every loss's value and gradient on the backend of KERAS_BACKEND."""

import functools
import json
import sys

import keras
import numpy as np

import caltrain_tf as ct
from tests.losses.cases import BRANCHES, PRIMARY, SECONDARY, batch


def values_and_gradients(functions, logits):
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        @jax.jit
        def together(x):
            return [jax.value_and_grad(function)(x) for function in functions]

        return together(logits)
    return [value_and_gradient(function, logits) for function in functions]


def value_and_gradient(function, logits):
    if keras.backend.backend() == "torch":
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
    cases = []
    for name, options in BRANCHES:
        function, _ = {**PRIMARY, **SECONDARY}[name]
        weighted = {"sample_weight": weight} if name in SECONDARY else {}
        loss = functools.partial(function, **options, **weighted)

        def total(x, loss=loss):
            return keras.ops.sum(loss(labels, x, from_logits=True))

        cases.append((name, options, total))
    # What takes other labels than class ids.
    soft = np.random.default_rng(0).dirichlet(np.ones(4), 33).astype("float32")
    both = np.stack([labels, np.arange(33) % 3], axis=1)
    dual_focal, mdca = ct.losses.DualFocal(5.0, True), ct.losses.MDCA(True)
    groupwise = ct.losses.Groupwise("sb_ece", 4, from_logits=True)
    cases += [
        ("dual_focal, soft", {}, lambda x: dual_focal(soft, x)),
        ("mdca, soft", {}, lambda x: mdca(soft, x)),
        ("groupwise", {}, lambda x: groupwise(both, x)),
    ]
    names, options, functions = zip(*cases, strict=True)
    results = values_and_gradients(functions, logits)
    return [
        [name, given, float(value), np.asarray(gradient).tolist()]
        for name, given, (value, gradient) in zip(
            names, options, results, strict=True
        )
    ]


def mmce_hessian():
    """Of the value in five logits, or None where this has no way to it."""
    if keras.backend.backend() != "jax":
        return None
    import jax

    labels, logits = batch(5, 3, seed=7)

    def value(x):
        changed = keras.ops.concatenate([x[:, None], logits[:, 1:]], axis=1)
        return ct.losses.mmce(labels, changed, from_logits=True)

    hessian = jax.jit(jax.hessian(value))(logits[:, 0])
    return np.asarray(hessian).tolist()


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
