"""Training objectives as functions and as Keras losses.

`PRIMARY` and `SECONDARY` list them by name. The former have a value for each
example, the latter one for a batch, in which the scale of the weights does not
matter; it is 0 if no example counts. `CompositeLoss` adds two of them;
`Groupwise` averages one of them over groups.

All of them take class ids `(...)` or label distributions `(..., classes)`, and
probabilities or logits `(..., classes)`; `(..., 1)` is the probability or logit
of class 1. Leading axes are the batch and positions such as pixels or tokens.
With `multi_label=True` the last axis holds independent labels, which are
pooled.
"""

from caltrain_tf.losses.composite import CompositeLoss, PartMetric
from caltrain_tf.losses.groupwise import Groupwise
from caltrain_tf.losses.kernel import ESD, MMCE, esd, mmce
from caltrain_tf.losses.likelihood import (
    BSCEGRA,
    MSE,
    NLL,
    DualFocal,
    Focal,
    bsce_gra,
    dual_focal,
    focal,
    mse,
    nll,
)
from caltrain_tf.losses.margin import ACLS, MbLS, acls, mbls
from caltrain_tf.losses.marginal import DCA, MDCA, dca, mdca
from caltrain_tf.losses.registry import LABELS, PRIMARY, SECONDARY, get, options
from caltrain_tf.losses.soft_bins import (
    SBECE,
    SBMarginalECE,
    sb_ece,
    sb_marginal_ece,
)
from caltrain_tf.losses.uncertainty import AvUC, SoftAvUC, avuc, soft_avuc

__all__ = [
    "ACLS",
    "BSCEGRA",
    "DCA",
    "ESD",
    "LABELS",
    "MDCA",
    "MMCE",
    "MSE",
    "NLL",
    "PRIMARY",
    "SBECE",
    "SECONDARY",
    "AvUC",
    "CompositeLoss",
    "DualFocal",
    "Focal",
    "Groupwise",
    "MbLS",
    "PartMetric",
    "SBMarginalECE",
    "SoftAvUC",
    "acls",
    "avuc",
    "bsce_gra",
    "dca",
    "dual_focal",
    "esd",
    "focal",
    "get",
    "mbls",
    "mdca",
    "mmce",
    "mse",
    "nll",
    "options",
    "sb_ece",
    "sb_marginal_ece",
    "soft_avuc",
]
