"""Training objectives as functions and as Keras losses.

Those in `PRIMARY` have a value for each example, those in `SECONDARY` one for a
batch, which is 0 if no example counts.
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
