"""Training objectives as functions and as Keras losses.

| name | class | function |
|---|---|---|
| `nll` | `NLL` | `nll` |
| `focal` | `Focal` | `focal` |
| `mse` | `MSE` | `mse` |
| `dual_focal` | `DualFocal` | `dual_focal` |
| `bsce_gra` | `BSCEGRA` | `bsce_gra` |
| `sb_ece` | `SBECE` | `sb_ece` |
| `s_avuc` | `SoftAvUC` | `soft_avuc` |
| `avuc` | `AvUC` | `avuc` |
| `avuc_gs` | `AvUC(stop_gradient=True)` | `avuc` |
| `mmce` | `MMCE` | `mmce` |
| `sb_marginal_ece` | `SBMarginalECE` | `sb_marginal_ece` |
| `esd` | `ESD` | `esd` |
| `mdca` | `MDCA` | `mdca` |
| `dca` | `DCA` | `dca` |
| `mbls` | `MbLS` | `mbls` |
| `acls` | `ACLS` | `acls` |

`CompositeLoss` adds two of them; `Groupwise` averages one of them over groups.
"""

from caltrain_tf.losses.avuc import AvUC, avuc
from caltrain_tf.losses.bsce_gra import BSCEGRA, bsce_gra
from caltrain_tf.losses.composite import CompositeLoss, PartMetric
from caltrain_tf.losses.dual_focal import DualFocal, dual_focal
from caltrain_tf.losses.esd import ESD, esd
from caltrain_tf.losses.focal import Focal, focal
from caltrain_tf.losses.groupwise import Groupwise
from caltrain_tf.losses.margin import ACLS, MbLS, acls, mbls
from caltrain_tf.losses.mdca import DCA, MDCA, dca, mdca
from caltrain_tf.losses.mmce import MMCE, mmce
from caltrain_tf.losses.mse import MSE, mse
from caltrain_tf.losses.nll import NLL, nll
from caltrain_tf.losses.registry import PRIMARY, SECONDARY, get
from caltrain_tf.losses.sb_ece import SBECE, sb_ece
from caltrain_tf.losses.sb_marginal_ece import SBMarginalECE, sb_marginal_ece
from caltrain_tf.losses.soft_avuc import SoftAvUC, soft_avuc

__all__ = [
    "MMCE",
    "MSE",
    "NLL",
    "PRIMARY",
    "SBECE",
    "SECONDARY",
    "AvUC",
    "CompositeLoss",
    "Focal",
    "Groupwise",
    "PartMetric",
    "SBMarginalECE",
    "SoftAvUC",
    "avuc",
    "focal",
    "get",
    "mmce",
    "mse",
    "nll",
    "sb_ece",
    "sb_marginal_ece",
    "soft_avuc",
    "BSCEGRA",
    "bsce_gra",
    "DualFocal",
    "dual_focal",
    "ESD",
    "esd",
    "ACLS",
    "MbLS",
    "acls",
    "mbls",
    "DCA",
    "MDCA",
    "dca",
    "mdca",
]
