"""Measures what a secondary loss costs in accuracy and gains in calibration.

    python benchmarks/recipe.py

Trains small networks on ten ordinary problems with batches of 32, 128 and 512
and five seeds: with NLL and focal loss alone, and with a secondary loss, from
the same initial weights and with the same batches. It prints one row per
secondary loss, primary loss and recipe:

- runs: the number of runs, each compared with its primary loss alone;
- worse: the share of runs that lose more than one point of accuracy;
- lowest, accuracy: the lowest and the mean change of accuracy, in points;
- ECE alone, ECE: the mean ECE of the primary loss, and its mean change, in
  points (l2, 15 bins of equal mass, debiased), over the problems and batches
  where the mean ECE of the primary loss is above 3%.

A second table has the same runs by "share": beta times the secondary loss, in
primary losses, over the first tenth of the steps, as `part_metrics` shows it.

The rows "another seed" are the primary loss alone with other initial weights
and other batches: the change that chance makes. Generated problems have 5,000
test examples. The sets of scikit-learn are trained on each half and tested on
the other, and the two halves are one run. A batch is never larger than the
training set. With `--study`, the command compares more recipes, on half of the
problems and on other seeds.
"""

import argparse
import functools
import itertools
import os
import typing

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from jax.example_libraries import optimizers  # noqa: E402
from sklearn import datasets, decomposition  # noqa: E402

import caltrain_tf as ct  # noqa: E402

# Steps of training by size of batch.
STEPS = {32: 400, 128: 200, 512: 100}
WIDTH = 32
EXAMPLES, TEST_EXAMPLES, FEATURES = 600, 5000, 30
MISCALIBRATED = 3.0
SHARES = (0.05, 0.2, 1.0)
PRIMARIES = (ct.losses.nll, ct.losses.focal)
SECONDARIES = {
    "sb_ece": ct.losses.SBECE(root=True, from_logits=True),
    "sb_ece, squared": ct.losses.SBECE(root=False, from_logits=True),
    "s_avuc": ct.losses.SoftAvUC(from_logits=True),
    "mmce": ct.losses.MMCE(from_logits=True),
    "esd": ct.losses.ESD(from_logits=True),
}


class Recipe(typing.NamedTuple):
    """How the secondary loss is added to the primary one."""

    beta: float = 0.0
    warmup: float = 0.0  # share of the steps in which beta rises from 0
    limit: float = 1e9  # of the secondary gradient, in primary gradients
    primary: int = 0  # index into PRIMARIES
    reseed: int = 0  # 1 for other initial weights and other batches


# The default of `CompositeLoss`, larger values that the study suggests, and 1.
RECIPES = {
    "sb_ece": (Recipe(0.1), Recipe(0.3), Recipe(1.0)),
    "sb_ece, squared": (Recipe(0.1), Recipe(0.5), Recipe(1.0)),
    "s_avuc": (Recipe(0.1), Recipe(0.2), Recipe(1.0)),
    "mmce": (Recipe(0.1), Recipe(1.0), Recipe(2.0)),
    "esd": (Recipe(0.1), Recipe(1.0), Recipe(5.0)),
}
CANDIDATES = (
    *(Recipe(beta) for beta in (0.1, 0.3, 1.0, 3.0)),
    Recipe(1.0, warmup=0.5),
    Recipe(1.0, limit=0.3),
)


def halves(name):
    """Each half of a set of scikit-learn is tested on the other."""

    def draw(seed):
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        if x.shape[1] > FEATURES:
            x = decomposition.PCA(FEATURES).fit_transform(x)
        order = np.random.default_rng(seed).permutation(len(y) // 2 * 2)
        first, second = order.reshape(2, -1)
        for train, test in ((first, second), (second, first)):
            yield x[train[:EXAMPLES]], y[train[:EXAMPLES]], x[test], y[test]

    return draw


def generated(num_classes, **options):
    """A new training set for each seed, with one large test set."""

    def draw(seed):
        x, y = datasets.make_classification(
            3 * TEST_EXAMPLES,
            n_features=FEATURES,
            n_informative=10,
            n_classes=num_classes,
            n_clusters_per_class=1 if num_classes > 2 else 2,
            random_state=0,
            **options,
        )
        train = np.random.default_rng(seed).permutation(2 * TEST_EXAMPLES)
        train, test = train[:EXAMPLES], slice(2 * TEST_EXAMPLES, None)
        yield x[train], y[train], x[test], y[test]

    return draw


STUDY = {
    "breast cancer": halves("breast_cancer"),
    "digits": halves("digits"),
    "2 classes, noisy": generated(2, flip_y=0.3),
    "10 classes": generated(10, class_sep=1.5),
    "10 classes, imbalanced": generated(
        10, class_sep=1.5, weights=np.geomspace(1, 20, 10) / 78.5
    ),
}
PROBLEMS = {
    **STUDY,
    "wine": halves("wine"),
    "2 classes": generated(2, class_sep=1.5),
    "2 classes, imbalanced": generated(2, weights=(0.9,)),
    "10 classes, noisy": generated(10, class_sep=1.5, flip_y=0.3),
    "50 classes": generated(50, class_sep=2.0),
}


def network(params, x):
    """Logits of a network with one hidden layer."""
    (w1, b1), (w2, b2) = params
    return jax.nn.relu(x @ w1 + b1) @ w2 + b2


@functools.cache
def trainer(learning_rate):
    """Returns a function that trains one network per recipe.

    All problems have the same shapes, and the secondary loss is an index, so
    that XLA compiles once for each number of classes and size of batch.
    """
    init, update, get = optimizers.adam(learning_rate)

    def primary(logits, y, index):
        values = [jnp.mean(f(y, logits, True)) for f in PRIMARIES]
        return jnp.stack(values)[index]

    def secondary(loss):
        return lambda logits, y: jax.value_and_grad(lambda z: loss(y, z))(
            logits
        )

    branches = [secondary(loss) for loss in SECONDARIES.values()]

    def gradient(logits, y, recipe, progress, secondary):
        main, g = jax.value_and_grad(primary)(
            logits, y, recipe.primary.astype(int)
        )
        added, s = jax.lax.switch(secondary, branches, logits, y)
        ramp = jnp.clip(progress / jnp.maximum(recipe.warmup, 1e-9), 0, 1)
        s = recipe.beta * ramp * s
        ratio = jnp.linalg.norm(g) / (jnp.linalg.norm(s) + 1e-12)
        g += s * jnp.minimum(1.0, recipe.limit * ratio)
        return g, jnp.stack([main, recipe.beta * added])

    def train(x, y, x_test, starts, rows, secondary, recipe):
        def step(state, at):
            index, pair = at
            batch = pair[again]
            logits, back = jax.vjp(lambda p: network(p, x[batch]), get(state))
            direction, parts = gradient(
                logits, y[batch], recipe, index / len(rows), secondary
            )
            return update(index, back(direction)[0], state), parts

        again = recipe.reseed.astype(int)
        state = init(jax.tree.map(lambda weights: weights[again], starts))
        state, parts = jax.lax.scan(step, state, (jnp.arange(len(rows)), rows))
        first = parts[: len(rows) // 10].mean(axis=0)
        return network(get(state), x_test), first[1] / first[0]

    return jax.jit(jax.vmap(train, (None,) * 6 + (0,)))


def starts_and_batches(rng, x, num_classes, batch):
    """Glorot's initial weights and the rows of each step, both twice."""
    starts = [
        (np.sqrt(6 / (m + n)) * rng.uniform(-1, 1, (2, m, n)), np.zeros((2, n)))
        for m, n in ((x.shape[1], WIDTH), (WIDTH, num_classes))
    ]
    (weights, bias), output = starts
    starts = [(padded(weights, 2, FEATURES, WIDTH), bias), output]
    starts = jax.tree.map(np.float32, starts)
    rows = []
    while len(rows) < 2 * STEPS[batch]:
        order = rng.permutation(len(x))
        rows += np.split(order, range(batch, len(x) + 1, batch))[:-1]
    return starts, np.stack(rows)[: 2 * STEPS[batch]].reshape(-1, 2, batch)


def padded(x, *shape):
    """`x` with zeros up to the shape."""
    return np.pad(x, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)])


def measure(draw, batch, seed, secondary, recipes):
    """Yields accuracy and ECE of each recipe, in percent, and its share."""
    logits, labels, shares = [], [], []
    for x, y, x_test, y_test in draw(seed):
        if batch > len(x):
            return
        mean, std = x.mean(0), x.std(0) + 1e-6
        x, x_test = (np.float32((each - mean) / std) for each in (x, x_test))
        rng = np.random.default_rng((seed, batch))
        z, share = trainer(1e-3 * (batch / 32) ** 0.5)(
            padded(x, EXAMPLES, FEATURES),
            padded(y, EXAMPLES),
            padded(x_test, TEST_EXAMPLES, FEATURES),
            *starts_and_batches(rng, x, y_test.max() + 1, batch),
            list(SECONDARIES).index(secondary),
            recipes,
        )
        logits.append(np.asarray(z)[:, : len(y_test)])
        shares.append(share)
        labels.append(y_test)
    labels = np.concatenate(labels)
    shares = np.mean(shares, axis=0)
    for z, share in zip(np.concatenate(logits, axis=1), shares, strict=True):
        ece = ct.metrics.calibration_error(
            z, labels, from_logits=True, debias=True
        )
        yield {
            "accuracy": 100 * np.mean(z.argmax(-1) == labels),
            "ece": 100 * ece,
            "share": share,
        }


def runs(problems, batches, seeds, recipes):
    """Yields a row for each trained network (or pair of halves)."""
    for batch, name, secondary in itertools.product(batches, problems, recipes):
        chosen = [
            recipe._replace(primary=primary)
            for primary in range(len(PRIMARIES))
            for recipe in (Recipe(), Recipe(reseed=1), *recipes[secondary])
        ]
        columns = Recipe(*np.array(chosen, "float32").T)
        for seed in seeds:
            measured = measure(problems[name], batch, seed, secondary, columns)
            # There are none if the batch is larger than the training set.
            for recipe, values in zip(chosen, measured, strict=False):
                yield {
                    "problem": name,
                    "batch": batch,
                    "seed": seed,
                    "secondary": secondary,
                    **recipe._asdict(),
                    **values,
                }


def compare(rows):
    """Returns a row for each run, with its change against the primary loss."""
    run = ["problem", "batch", "seed", "secondary", "primary"]
    is_alone = (rows.beta == 0) & (rows.reseed == 0)
    alone = rows[is_alone].set_index(run)[["accuracy", "ece"]]
    mean = alone.ece.groupby(["problem", "batch", "primary"]).transform("mean")
    alone["of_primary"] = alone.ece.where(mean > MISCALIBRATED)
    rows = rows[~is_alone].merge(alone, on=run, suffixes=("", "_alone"))
    change = rows.accuracy - rows.accuracy_alone
    rows["lowest"] = rows["mean"] = change
    rows["worse"] = 100 * (change < -1)
    rows["ece"] -= rows.of_primary
    rows.loc[rows.reseed == 1, "secondary"] = "another seed"
    rows = rows.drop_duplicates([*run, *Recipe._fields])
    rows["primary"] = [PRIMARIES[int(i)].__name__ for i in rows.primary]
    return rows


def by_recipe(rows):
    """Returns a row for each secondary loss, primary loss and recipe."""
    groups = rows.sort_values("reseed", kind="stable", ascending=False).groupby(
        ["secondary", "primary", "beta", "warmup", "limit"], sort=False
    )
    table = groups.agg(
        {
            "problem": "size",
            "worse": "mean",
            "lowest": "min",
            "mean": "mean",
            "of_primary": "mean",
            "ece": "mean",
        }
    ).reset_index()
    return table.rename(
        columns={
            "problem": "runs",
            "worse": "worse (%)",
            "mean": "accuracy",
            "of_primary": "ECE alone",
            "ece": "ECE",
        }
    )


def by_share(rows):
    """Returns a row for each range of shares."""
    shares = pd.cut(rows[rows.reseed == 0].share, [-np.inf, *SHARES, np.inf])
    table = rows.groupby(shares, observed=True).agg(
        {"problem": "size", "worse": "mean", "lowest": "min", "mean": "mean"}
    )
    names = {"problem": "runs", "worse": "worse (%)", "mean": "accuracy"}
    return table.rename(columns=names).reset_index()


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--study", action="store_true", help="more recipes")
    parser.add_argument(
        "--batches", type=int, nargs="+", choices=STEPS, default=list(STEPS)
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--csv", help="where to write all runs")
    arguments = parser.parse_args()
    # The seeds of the study are below 100.
    problems, recipes, first = PROBLEMS, RECIPES, 100
    if arguments.study:
        problems, first = STUDY, 0
        recipes = dict.fromkeys(SECONDARIES, CANDIDATES)
    seeds = range(first, first + arguments.seeds)
    rows = []
    for row in runs(problems, arguments.batches, seeds, recipes):
        rows.append(row)
        if arguments.csv and row["seed"] == seeds[-1]:
            pd.DataFrame(rows).to_csv(arguments.csv, index=False)
    rows = compare(pd.DataFrame(rows))
    for table in (by_recipe(rows), by_share(rows)):
        print(table.to_markdown(index=False, floatfmt=".4g"), "\n")


if __name__ == "__main__":
    main()
