"""Share of the pure forward pass in the shift benchmark's time.

    python benchmarks/shift.py [--model=NAME] [--num_examples=N]
        [--corruptions=fog,snow] [--severity=S]

In half a minute: --num_examples=512 --corruptions=fog,defocus_blur,pixelate

First each corruption by itself, without the network. Then the network, WRN-10-1
of the quickstart when none is named, runs over corrupted sets of 32 x 32 pixels
as the evaluation does, one after another, in turns with passes over as many
inputs that are in memory: `plain` is the compiled network, a batch at a time,
`ours` the evaluation's way to run it, two batches at once on a processor. Below
them are their shares of the time of `all`, the sets with their images. All of
it twice: in the processor's time, summed over its cores, which other programs
disturb less, and by the clock, where images are made while the network runs.
`stored` are sets as of the published arrays. Numbers are medians over the
turns.
"""

import argparse
import tempfile
import time

import numpy as np

import caltrain_tf as ct
from caltrain_tf.evaluation.inference import compiled
from caltrain_tf.evaluation.inference import outputs
from caltrain_tf.evaluation.inference import walk

BATCH_SIZE = 256
TURNS = 3
CLOCKS = (time.process_time, time.perf_counter)


def times(*functions):
    """Returns processor and clock time by turn and function.

    They take turns, since other programs may disturb any of them.
    """
    rows = []
    for _ in range(TURNS + 1):
        row = []
        for function in functions:
            starts = [clock() for clock in CLOCKS]
            function()
            row.append(
                [
                    clock() - start
                    for clock, start in zip(CLOCKS, starts, strict=True)
                ]
            )
        rows.append(row)
    # Without the first turn, in which functions are compiled.
    return np.array(rows[1:])


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
    parser.add_argument("--num_examples", type=int, default=2048)
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
    inputs = [batch[:1] for batch in data.eval_batches("test", BATCH_SIZE)]

    def walk_row(label, sets, shifts):
        def plain():
            for (batch,) in inputs * len(shifts):
                infer(batch).numpy()

        def ours():
            for _ in outputs(infer, inputs * len(shifts)):
                pass

        def whole():
            for _ in walk(infer, sets, shifts, BATCH_SIZE, args.num_examples):
                pass

        turns = times(plain, ours, whole)
        per_image = 1e6 / (len(shifts) * args.num_examples)
        micros = np.median(turns, axis=0) * per_image
        shares = np.median(turns / turns[:, -1:], axis=0)
        for name, values, form in (
            (label, micros, ".0f"),
            ("", shares[:-1], ".0%"),
        ):
            cells = [
                "".join(f"{value:>9{form}}" for value in column).ljust(33)
                for column in values.T
            ]
            print(f"{name:<18}" + "".join(cells).rstrip(), flush=True)

    print(
        f"{args.model}, {args.num_examples} images a set, severity "
        f"{args.severity}; us an image\n\n{'':<20}{'processor time':>14}"
    )
    for corruption in args.corruptions:
        corrupt = ct.data.corruptions.get(corruption, args.severity)

        def make(corrupt=corrupt):
            for start in range(0, args.num_examples, BATCH_SIZE):
                few = images[start : start + BATCH_SIZE]
                corrupt(few, np.arange(start, start + len(few))).numpy()

        made = np.median(times(make)[:, 0, 0]) * 1e6 / args.num_examples
        print(f"{corruption:<20}{made:>14.0f}", flush=True)
    title = f"{'plain':>9}{'ours':>9}{'all':>9}".ljust(33)
    print(
        f"\n{'':<18}{'processor time':^27}{'':6}{'wall clock':^27}\n"
        f"{'':<18}{title * len(CLOCKS)}".rstrip()
    )
    shifts = [(corruption, args.severity) for corruption in args.corruptions]
    walk_row("all, on the fly", ct.data.GeneratedSets(data), shifts)
    with tempfile.TemporaryDirectory() as folder:
        stored = stored_sets(folder, images, labels)
        severities = ct.data.corruptions.SEVERITIES
        walk_row("stored", stored, [("fog", level) for level in severities])


if __name__ == "__main__":
    main()
