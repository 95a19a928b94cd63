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

from caltrain_tf.losses.avuc import AvUC
from caltrain_tf.losses.avuc import avuc
from caltrain_tf.losses.bsce_gra import BSCEGRA
from caltrain_tf.losses.bsce_gra import bsce_gra
from caltrain_tf.losses.composite import CompositeLoss
from caltrain_tf.losses.composite import PartMetric
from caltrain_tf.losses.dual_focal import DualFocal
from caltrain_tf.losses.dual_focal import dual_focal
from caltrain_tf.losses.esd import ESD
from caltrain_tf.losses.esd import esd
from caltrain_tf.losses.focal import Focal
from caltrain_tf.losses.focal import focal
from caltrain_tf.losses.groupwise import Groupwise
from caltrain_tf.losses.margin import ACLS
from caltrain_tf.losses.margin import MbLS
from caltrain_tf.losses.margin import acls
from caltrain_tf.losses.margin import mbls
from caltrain_tf.losses.mdca import DCA
from caltrain_tf.losses.mdca import MDCA
from caltrain_tf.losses.mdca import dca
from caltrain_tf.losses.mdca import mdca
from caltrain_tf.losses.mmce import MMCE
from caltrain_tf.losses.mmce import mmce
from caltrain_tf.losses.mse import MSE
from caltrain_tf.losses.mse import mse
from caltrain_tf.losses.nll import NLL
from caltrain_tf.losses.nll import nll
from caltrain_tf.losses.registry import PRIMARY
from caltrain_tf.losses.registry import SECONDARY
from caltrain_tf.losses.registry import get
from caltrain_tf.losses.sb_ece import SBECE
from caltrain_tf.losses.sb_ece import sb_ece
from caltrain_tf.losses.sb_marginal_ece import SBMarginalECE
from caltrain_tf.losses.sb_marginal_ece import sb_marginal_ece
from caltrain_tf.losses.soft_avuc import SoftAvUC
from caltrain_tf.losses.soft_avuc import soft_avuc

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
