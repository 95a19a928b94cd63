"""Share of the pure forward pass in the shift benchmark's time.

    python benchmarks/shift.py [--model=NAME] [--num_examples=N]
        [--corruptions=fog,snow] [--severity=S]

In a minute: --num_examples=512 --corruptions=fog,defocus_blur,pixelate

The network, WRN-10-1 of the quickstart when none is named, runs over corrupted
images of 32 x 32 pixels as the evaluation does, and over as many stored inputs
that are in memory. 100% means that images cost nothing. Twice: in the
processor's time, summed over its cores, which other programs disturb little,
and by the clock, where images are made while the network runs. `stored` are
images as of the published arrays; the others are made on the fly.
"""

import argparse
import statistics
import tempfile
import time

import numpy as np

import caltrain_tf as ct
from caltrain_tf.evaluation.shift import _compiled
from caltrain_tf.evaluation.shift import _predict

BATCH_SIZE = 256
REPEATS = 2
CLOCKS = (time.process_time, time.perf_counter)


def seconds(*functions):
    """Returns the least times of each function, `(processor, clock)`.

    They take turns, since other programs may disturb any of them.
    """
    times = [[] for _ in functions]
    for _ in range(REPEATS + 1):
        for function, rows in zip(functions, times, strict=True):
            starts = [clock() for clock in CLOCKS]
            function()
            rows.append(
                [
                    clock() - start
                    for clock, start in zip(CLOCKS, starts, strict=True)
                ]
            )
    # Without the first, in which functions are compiled.
    return [np.min(rows[1:], axis=0) for rows in times]


def stored_sets(folder, images, labels):
    """Returns the images as published arrays."""
    np.save(f"{folder}/fog.npy", np.tile(images, (5, 1, 1, 1)))
    np.save(f"{folder}/labels.npy", np.tile(labels, 5))

    class Cifar:
        name = "cifar10"
        image_shape = (32, 32, 3)
        eval_batches = ct.data.ArrayData(
            "cifar10", {"test": (images, labels)}
        ).eval_batches

    return ct.data.PublishedArrays(Cifar, folder)


def arguments():
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="wrn-10-1")
    parser.add_argument("--num_examples", type=int, default=1024)
    parser.add_argument(
        "--corruptions",
        type=lambda text: text.split(","),
        default=list(ct.data.corruptions.NAMES),
    )
    parser.add_argument("--severity", type=int, default=3)
    args = parser.parse_args()
    if args.num_examples < 1:
        parser.error("--num_examples must be at least 1")
    try:
        for name in args.corruptions:
            ct.data.corruptions.get(name, args.severity)
    except ValueError as error:
        parser.error(str(error))
    return args


def main():
    """Prints a row for each corruption, and the means."""
    args = arguments()
    model = ct.models.get(args.model, num_classes=10, input_shape=(32, 32, 3))
    rng = np.random.default_rng(0)
    shape = (args.num_examples, 32, 32, 3)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    labels = rng.integers(0, 10, args.num_examples)
    data = ct.data.ArrayData("random", {"test": (images, labels)})
    infer = _compiled(model)
    inputs = [batch[0] for batch in data.eval_batches("test", BATCH_SIZE)]

    def forward():
        for batch in inputs:
            infer(batch).numpy()

    print(
        f"{args.model}, {args.num_examples} images, severity {args.severity}; "
        f"us an image\n{'':<20}{'processor time':^28}{'wall clock':^28}\n"
        f"{'':<20}" + f"{'forward':>10}{'all':>10}{'share':>8}" * 2
    )
    shares = []

    def row(label, sets, corruption):
        dataset = sets.batches(corruption, args.severity, BATCH_SIZE)
        alone, whole = seconds(forward, lambda: _predict(infer, dataset))
        shares.append(alone / whole)
        cells = "".join(
            f"{1e6 * first / args.num_examples:>10.0f}"
            f"{1e6 * second / args.num_examples:>10.0f}{first / second:>8.0%}"
            for first, second in zip(alone, whole, strict=True)
        )
        print(f"{label:<20}{cells}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        row("stored", stored_sets(folder, images, labels), "fog")
    shares.clear()
    generated = ct.data.GeneratedSets(data)
    for corruption in args.corruptions:
        row(corruption, generated, corruption)
    means = [statistics.mean(column) for column in zip(*shares, strict=True)]
    print(f"{'mean on the fly':<20}" + "".join(f"{m:>28.0%}" for m in means))


if __name__ == "__main__":
    main()
