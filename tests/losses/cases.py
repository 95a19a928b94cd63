"""Every loss once, with its naive reference, for tests over all of them."""

import numpy as np

import caltrain_tf as ct
from tests.losses import naive

# name -> (function, naive reference)
PRIMARY = {
    "nll": (ct.losses.nll, naive.nll),
    "focal": (ct.losses.focal, naive.focal),
    "mse": (ct.losses.mse, naive.mse),
    "dual_focal": (ct.losses.dual_focal, naive.dual_focal),
    "bsce_gra": (ct.losses.bsce_gra, naive.bsce_gra),
}
SECONDARY = {
    "sb_ece": (ct.losses.sb_ece, naive.sb_ece),
    "s_avuc": (ct.losses.soft_avuc, naive.soft_avuc),
    "avuc": (ct.losses.avuc, naive.avuc),
    "mmce": (ct.losses.mmce, naive.mmce),
    "sb_marginal_ece": (ct.losses.sb_marginal_ece, naive.sb_marginal_ece),
    "esd": (ct.losses.esd, naive.esd),
    "mdca": (ct.losses.mdca, naive.mdca),
    "dca": (ct.losses.dca, naive.dca),
    "mbls": (ct.losses.mbls, naive.mbls),
    "acls": (ct.losses.acls, naive.acls),
}
# Those whose references take logits, and have no value for probabilities.
OF_LOGITS = ("mbls", "acls")
# Those with a factor that has no gradient, which their references take as
# `fixed`.
WITH_FIXED_FACTOR = ("bsce_gra", "acls")
NAMES = (*ct.losses.PRIMARY, *ct.losses.SECONDARY)
# Options that lead through other branches than the defaults.
VARIANTS = [
    ("nll", {}),
    ("nll", {"label_smoothing": 0.1}),
    ("focal", {}),
    ("focal", {"gamma": 0.0}),
    ("focal", {"gamma": 0.5}),
    ("focal", {"gamma": "flsd53"}),
    ("mse", {}),
    ("dual_focal", {}),
    ("dual_focal", {"gamma": 0.0}),
    ("dual_focal", {"gamma": 0.5}),
    ("bsce_gra", {}),
    ("bsce_gra", {"gamma": 0.0}),
    ("bsce_gra", {"gamma": 1.5, "norm": 2}),
    ("bsce_gra", {"gamma": 2.0, "norm": 3.5}),
    ("sb_ece", {}),
    ("sb_ece", {"binning": "bin"}),
    ("sb_ece", {"norm": 1}),
    ("sb_ece", {"norm": 1, "binning": "bin", "num_bins": 3}),
    ("sb_ece", {"norm": 3.5, "binning": "bin", "temperature": 0.1}),
    ("sb_ece", {"norm": 1.5, "root": False, "num_bins": 1}),
    ("sb_ece", {"root": False, "lower": "chance"}),
    ("sb_ece", {"lower": 0.25, "binning": "bin"}),
    ("s_avuc", {}),
    ("s_avuc", {"threshold": 0.1, "temperature": 1.0}),
    ("avuc", {}),
    ("avuc", {"threshold": 0.3}),
    ("mmce", {}),
    ("mmce", {"weighted": True, "width": 0.05}),
    ("mmce", {"root": True}),
    ("sb_marginal_ece", {}),
    ("sb_marginal_ece", {"num_bins": 4, "norm": 1, "root": False}),
    ("sb_marginal_ece", {"temperature": 0.004}),
    ("sb_marginal_ece", {"norm": 3, "num_bins": 1}),
    ("sb_marginal_ece", {"binning": "label", "norm": 1, "num_bins": 4}),
    ("esd", {}),
    ("mdca", {}),
    ("dca", {}),
    ("mbls", {"margin": 0.0}),
    ("mbls", {"margin": 2.0}),
    ("acls", {"margin": 0.0}),
    ("acls", {"margin": 2.0, "positive": 0.3, "negative": 1.0}),
]
# Those that lead through other branches than numbers do.
BRANCHES = [
    (name, options)
    for name, options in VARIANTS
    if not options
    or name in ("sb_ece", "sb_marginal_ece", *OF_LOGITS)
    or any(isinstance(value, (bool, str)) for value in options.values())
]


def get(name, /, **options):
    """The loss of a name, of logits unless said, and not 0 on small logits."""
    if name in OF_LOGITS:
        options = {"from_logits": True, "margin": 1.0, **options}
    return ct.losses.get(name, **options)


def batch(num_examples, num_classes, seed=0, scale=2.0):
    """Logits and labels of which about half are predicted."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (num_examples, num_classes))
    labels = rng.integers(0, num_classes, num_examples)
    hit = rng.random(num_examples) < 0.5
    labels[hit] = logits.argmax(axis=1)[hit]
    return labels, logits.astype("float32")


def value_and_gradient(function, labels, y_pred, *args, **options):
    """Of a loss's sum, with respect to the predictions, on TensorFlow."""
    import tensorflow as tf

    y_pred = tf.convert_to_tensor(y_pred)
    with tf.GradientTape() as tape:
        tape.watch(y_pred)
        value = function(labels, y_pred, *args, **options)
        total = tf.reduce_sum(value)
    return value, tape.gradient(total, y_pred)
