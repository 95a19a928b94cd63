"""Calibrates networks of full size after training, and compares calibrators.

    python benchmarks/networks.py FOLDER

Each `.npz` file of the folder is a network: `calibration_logits`,
`calibration_labels`, `test_logits` and `test_labels`. Calibrators are fitted to
the calibration split. The first table has the test ECE in percent (l2, 15 bins
of equal mass) with a 95% interval of bootstrap samples of the test set, the
second one the test NLL. The third compares every calibrator with temperature
scaling over all networks: in how many its ECE is lower, the mean difference,
and p-values of a paired t-test and of Wilcoxon's test.
"""

import argparse
import pathlib
import warnings

import numpy as np
import pandas as pd
from scipy import stats

import caltrain_tf as ct

posthoc = ct.posthoc
CALIBRATORS = {
    "none": None,
    "TS": posthoc.TemperatureScaling(),
    "TS-SB-ECE": posthoc.TemperatureScaling("sb_ece"),
    "TS-SB-ECE, plain": posthoc.TemperatureScaling(
        "sb_ece", likelihood_weight=0
    ),
    "TS-HB-ECE": posthoc.TemperatureScaling("hb_ece"),
    "Dirichlet": posthoc.DirichletCalibration(),
    "structured vector": posthoc.StructuredVectorScaling(),
    "structured matrix": posthoc.StructuredMatrixScaling(),
    "auto": posthoc.AutoCalibration(),
}


def measure(path, num_samples):
    """Yields a row for each calibrator of one network."""
    with np.load(path) as arrays:
        arrays = dict(arrays)
    data = arrays["calibration_logits"], arrays["calibration_labels"]
    labels = arrays["test_labels"]
    for name, calibrator in CALIBRATORS.items():
        logits = arrays["test_logits"]
        if calibrator is not None:
            logits = calibrator.fit(*data).transform(logits)
        ece, (low, high) = ct.metrics.bootstrap(
            ct.metrics.calibration_error,
            logits,
            labels,
            num_samples=num_samples,
            from_logits=True,
        )
        yield {
            "network": path.stem,
            "calibrator": name,
            "ECE": 100 * ece,
            "interval": f"{100 * ece:.2f} [{100 * low:.2f}, {100 * high:.2f}]",
            "NLL": ct.metrics.negative_log_likelihood(
                logits, labels, from_logits=True
            ),
        }


def compare(errors, reference):
    """Returns a row for each calibrator against the reference."""
    rows = {}
    for name in errors.columns.drop(reference):
        change = errors[name] - errors[reference]
        rows[name] = {
            "lower in": f"{(change < 0).sum()} of {len(change)}",
            "mean difference": f"{change.mean():+.2f}",
            "p, t-test": f"{stats.ttest_1samp(change, 0).pvalue:.4f}",
            "p, Wilcoxon": f"{stats.wilcoxon(change).pvalue:.4f}",
        }
    return pd.DataFrame(rows).T


def main():
    """Prints the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--num_samples", type=int, default=200)
    args = parser.parse_args()
    # Of harm that a calibrator may do: the tables show it.
    warnings.simplefilter("ignore")
    rows = pd.DataFrame(
        row
        for path in sorted(args.folder.glob("*.npz"))
        for row in measure(path, args.num_samples)
    )

    def table(values):
        wide = rows.pivot(index="network", columns="calibrator", values=values)
        return wide[list(CALIBRATORS)]

    print("ECE (%)\n")
    print(table("interval").to_markdown())
    print("\nNLL\n")
    print(table("NLL").to_markdown(floatfmt=".4f"))
    print("\nECE against TS\n")
    print(compare(table("ECE"), "TS").to_markdown())


if __name__ == "__main__":
    main()
