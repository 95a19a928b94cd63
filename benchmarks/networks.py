"""Calibrates networks of full size after training, and compares calibrators.

    python benchmarks/networks.py FOLDER
    python benchmarks/networks.py FOLDER --examples=300 --only=TS

Each `.npz` file of the folder is a network: `calibration_logits`,
`calibration_labels`, `test_logits` and `test_labels`. Calibrators are fitted to
the calibration split. The first table has the test ECE in percent (l2, 15 bins
of equal mass) with a 95% interval of bootstrap samples of the test set, the
second one the test NLL. The third compares every calibrator with temperature
scaling over all networks: in how many its ECE is lower, the mean difference,
and p-values of a paired t-test and of Wilcoxon's test.

`--examples` draws that many calibration examples `--draws` times. Values are
then means over the draws, with the smallest and the largest ECE instead of the
interval. `--only` takes TS and the calibrators whose name begins with it.
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


def measure(path, args):
    """Yields a row for each calibrator of one network."""
    with np.load(path) as arrays:
        arrays = dict(arrays)
    data = arrays["calibration_logits"], arrays["calibration_labels"]
    test = arrays["test_logits"], arrays["test_labels"]
    for name, calibrator in CALIBRATORS.items():
        if name != "TS" and not name.startswith(args.only):
            continue
        found = []
        for draw in range(args.draws if args.examples else 1):
            rows = np.random.default_rng(draw).permutation(len(data[1]))
            rows = np.sort(rows[: args.examples])
            logits = test[0]
            if calibrator is not None:
                calibrator.fit(data[0][rows], data[1][rows])
                logits = calibrator.transform(logits)
            options = {"labels": test[1], "from_logits": True}
            ece = ct.metrics.calibration_error(logits, **options)
            nll = ct.metrics.negative_log_likelihood(logits, **options)
            found.append([100 * ece, nll])
        errors, nlls = np.transpose(found)
        low, high = errors.min(), errors.max()
        if not args.examples:
            _, interval = ct.metrics.bootstrap(
                ct.metrics.calibration_error,
                logits,
                num_samples=args.num_samples,
                **options,
            )
            low, high = 100 * np.array(interval)
        yield {
            "network": path.stem,
            "calibrator": name,
            "ECE": errors.mean(),
            "interval": f"{errors.mean():.2f} [{low:.2f}, {high:.2f}]",
            "NLL": nlls.mean(),
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
    parser.add_argument("--examples", type=int)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--num_samples", type=int, default=200)
    args = parser.parse_args()
    # Of harm that a calibrator may do: the tables show it.
    warnings.simplefilter("ignore")
    rows = pd.DataFrame(
        row
        for path in sorted(args.folder.glob("*.npz"))
        for row in measure(path, args)
    )

    def table(values):
        wide = rows.pivot(index="network", columns="calibrator", values=values)
        return wide[rows["calibrator"].unique()]

    print("ECE (%)\n")
    print(table("interval").to_markdown())
    print("\nmean ECE (%)\n")
    print(table("ECE").mean().to_frame().T.to_markdown(floatfmt=".2f"))
    print("\nNLL\n")
    print(table("NLL").to_markdown(floatfmt=".4f"))
    print("\nECE against TS\n")
    print(compare(table("ECE"), "TS").to_markdown())


if __name__ == "__main__":
    main()
