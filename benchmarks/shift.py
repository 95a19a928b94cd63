"""Share of the pure forward pass in the shift benchmark's time.

    python benchmarks/shift.py [--model=NAME] [--num_examples=N]
        [--corruptions=fog,snow] [--severity=S]

In half a minute: --num_examples=512 --corruptions=fog,defocus_blur,pixelate

The network, WRN-10-1 of the quickstart when none is named, runs over corrupted
sets of 32 x 32 pixels as the evaluation does, one after another, and over as
many stored inputs that are in memory. 100% means that images cost nothing.
Twice: in the processor's time, summed over its cores, which other programs
disturb little, and by the clock, where images are made while the network runs.
`stored` are sets as of the published arrays; the others are made on the fly,
and before that each corruption is timed by itself, without the network.
"""

import argparse
import tempfile
import time

import numpy as np

import caltrain_tf as ct
from caltrain_tf.evaluation.inference import compiled
from caltrain_tf.evaluation.inference import walk

BATCH_SIZE = 256
REPEATS = 3
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
    """Prints a row for each corruption, and those of whole walks."""
    args = arguments()
    model = ct.models.get(args.model, num_classes=10, input_shape=(32, 32, 3))
    rng = np.random.default_rng(0)
    shape = (args.num_examples, 32, 32, 3)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    labels = rng.integers(0, 10, args.num_examples)
    data = ct.data.ArrayData("random", {"test": (images, labels)})
    infer = compiled(model)
    inputs = [batch[0] for batch in data.eval_batches("test", BATCH_SIZE)]

    def forward(num_sets=1):
        for _ in range(num_sets):
            for batch in inputs:
                infer(batch).numpy()

    def cells(alone, whole, num_sets=1):
        per_image = 1e6 / (num_sets * args.num_examples)
        return (
            f"{alone * per_image:>10.0f}{whole * per_image:>10.0f}"
            f"{alone / whole:>8.0%}"
        )

    def walk_row(label, sets, shifts):
        def whole():
            for _ in walk(infer, sets, shifts, BATCH_SIZE, args.num_examples):
                pass

        alone, whole = seconds(lambda: forward(len(shifts)), whole)
        print(
            f"{label:<20}"
            + "".join(map(cells, alone, whole, [len(shifts)] * len(CLOCKS))),
            flush=True,
        )

    title = f"{'forward':>10}{'all':>10}{'share':>8}"
    print(
        f"{args.model}, {args.num_examples} images a set, severity "
        f"{args.severity}; us an image\n"
        f"{'':<20}{'processor time':^28}{'wall clock':^28}\n"
        f"{'':<20}{title * len(CLOCKS)}"
    )
    for corruption in args.corruptions:
        corrupt = ct.data.corruptions.get(corruption, args.severity)

        def make(corrupt=corrupt):
            for start in range(0, args.num_examples, BATCH_SIZE):
                few = images[start : start + BATCH_SIZE]
                corrupt(few, np.arange(start, start + len(few))).numpy()

        (alone, _), (made, _) = seconds(forward, make)
        print(f"{corruption:<20}{cells(alone, alone + made)}", flush=True)
    shifts = [(corruption, args.severity) for corruption in args.corruptions]
    walk_row("all, on the fly", ct.data.GeneratedSets(data), shifts)
    with tempfile.TemporaryDirectory() as folder:
        stored = stored_sets(folder, images, labels)
        severities = ct.data.corruptions.SEVERITIES
        walk_row("stored", stored, [("fog", level) for level in severities])


if __name__ == "__main__":
    main()
