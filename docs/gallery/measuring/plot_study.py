"""
Compare objectives over seeds
=============================

One run says little: seeds can differ as much as objectives do. The rows of a
study, one per run, become means with standard errors, paired tests and figures.
These are the rows of :doc:`our study </results>`; those of your own come from
``ct.report.collect("studies/cifar10")``.
"""

import pathlib

import caltrain_tf as ct

# %%
# Rows
# ----
#
# ``collect`` reads folders of runs, or of the rows of an earlier report. Here
# it reads those in the repository, and one of the three settings is kept.

repository = pathlib.Path(ct.__file__).parents[1]
rows = ct.report.collect(repository / "baselines" / "cifar" / "results")
setting = "cifar10 wrn-10-1 train[:2000] 20 epochs batch 64"
results = rows.results[rows.results["setting"] == setting]
print(
    results[["objective", "seed", "accuracy", "ece", "ece_ts"]]
    .sort_values(["objective", "seed"])
    .head(6)
    .to_string(index=False)
)

# %%
# Means, and what is best
# -----------------------
#
# As in the paper, the best objective is the one of the lowest error among those
# that give up less than one point of accuracy.

summaries = ct.evaluation.summarize_results(results)
for row in summaries:
    best = "*" if row["best"]["ece"] else ""
    name = ct.figures.objective_label(row["objective"])
    print(
        f"{name:>28}: accuracy {row['mean']['accuracy']:.2%}, "
        f"ECE {row['mean']['ece']:.2%} ± {row['error']['ece']:.2%} {best}"
    )

# %%
ct.figures.error_bars_by_objective(summaries)

# %%
# Is it more than chance?
# -----------------------
#
# Runs of one seed share initial weights and the order of examples, so that
# differences within seeds are tested, and p-values corrected for their number.

for row in ct.evaluation.significance_rows(results):
    if row["comparison"] == "primary":
        print(
            f"{row['objective']:>22} - {row['against']:>5}: "
            f"{100 * row['difference']:+.2f} points, p = {row['t_p_holm']:.3f}"
        )

# %%
# Accuracy against calibration
# ----------------------------
#
# Each small point is a run, each large one the mean of an objective; the line
# is the front of the means that no other mean beats in both.

ct.figures.accuracy_error_tradeoff(results)

# %%
# Accuracy against confidence, over the seeds of each objective: over-confident
# below the diagonal, under-confident above it.

reliability = rows.reliability[rows.reliability["setting"] == setting]
ct.figures.accuracy_against_confidence(reliability)
