"""
Compare objectives over seeds
=============================

A single run says little: seeds can differ as much as objectives do. This page
turns the rows of a study, one per run, into means with standard errors, paired
tests, effect sizes and figures. The rows are those of :doc:`our study of heads
</results>`; use ``collect.collect("studies/cifar10")`` for your own.
"""

import pathlib

import pandas as pd

import caltrain_tf as ct
from caltrain_tf.experiments import collect, figures, statistics

# %%
# Rows
# ----
#
# ``collect`` reads folders of runs, or the rows of an earlier report. Here it
# reads the rows in the repository, of which the setting with weight decay is
# kept for the first tables.

repository = pathlib.Path(ct.__file__).parents[1]
rows = collect.collect(repository / "baselines" / "cifar" / "heads")
setting = rows.results["setting"].iloc[0]
results = rows.results[rows.results["setting"] == setting]
print(
    results[["objective", "seed", "accuracy", "ece", "ece_ts"]]
    .sort_values(["objective", "seed"])
    .head(6)
    .to_string(index=False)
)

# %%
# Means and the best objective
# ----------------------------
#
# As in the paper, the best objective has the lowest error among those that give
# up less than one point of accuracy.

summary = statistics.summarize(results, ["accuracy", "ece"])
for objective, mean in summary.mean.iterrows():
    best = "*" if summary.best.loc[objective, "ece"] else ""
    error = summary.error.loc[objective, "ece"]
    print(
        f"{figures.objective_label(objective):>28}: "
        f"accuracy {mean['accuracy']:.2%}, "
        f"ECE {mean['ece']:.2%} ± {error:.2%} {best}"
    )

# %%
figures.error_bars_by_objective(summary)

# %%
# Is it more than chance?
# -----------------------
#
# Runs of one seed share the initial weights and the order of the examples.
# Therefore, the differences within seeds are tested, and the p-values are
# corrected for the number of tests.

for row in statistics.paired_tests(results).itertuples():
    print(
        f"{row.objective:>22} - {row.against:>5}: "
        f"{100 * row.difference:+.2f} points, p = {row.p_holm:.3f}"
    )

# %%
# Accuracy against confidence
# ---------------------------
#
# The next figure shows accuracy against confidence over the seeds of each
# objective. Points below the diagonal are over-confident, and points above it
# are under-confident.

reliability = rows.reliability.query(
    "setting == @setting and calibrator == 'none'"
)
figures.accuracy_against_confidence(reliability)

# %%
# Effect sizes
# ------------
#
# Cohen's d of each secondary loss, over all settings and primary losses,
# without scaling, with temperature scaling and with ``AutoCalibration``.

effects = pd.concat(
    statistics.effect_sizes(rows.results, metric)
    for metric in ("ece", "ece_ts", "ece_auto")
)
print(effects.pivot_table("d", "secondary", "metric", sort=False).round(2))

# %%
figures.effect_size_bars(effects[effects["metric"] != "ece_auto"])

# %%
# When does a secondary loss help?
# --------------------------------
#
# A point is a run: the change of its test error against the error of the
# primary loss alone on its training images.

figures.gains_by_training_gap(statistics.gains(rows.results))
