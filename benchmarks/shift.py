"""Measures the share of the network's forward pass in the shift benchmark.

    python benchmarks/shift.py [--model=NAME] [--num_examples=N]
        [--corruptions=fog,snow] [--severity=S]

In half a minute: --num_examples=512 --corruptions=fog,defocus_blur,pixelate

First it prints the time of each corruption without the network. Then the
network, by default WRN-10-1 of the quickstart, runs over corrupted sets of
32 x 32 pixels as in the shift benchmark, alternating with passes over as many
inputs in memory. Sets in the row `made` are generated on the fly; those in
`stored` are read from arrays like the published ones. Times are medians of
wall-clock time.
"""

import argparse
import tempfile
import time

import keras
import numpy as np

import caltrain_tf as ct

BATCH_SIZE = 256
TURNS = 3


def seconds(*functions):
    """Returns the seconds by turn and function.

    Functions take turns, so that other programs affect all of them. The first
    turn, in which functions are compiled, does not count.
    """
    rows = []
    for _ in range(TURNS + 1):
        row = []
        for function in functions:
            start = time.perf_counter()
            function()
            row.append(time.perf_counter() - start)
        rows.append(row)
    return np.array(rows[1:])


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
    return parser.parse_args()


def main():
    """Prints a row for each corruption and for each kind of corrupted sets."""
    args = arguments()
    model = ct.models.get(args.model, num_classes=10, input_shape=(32, 32, 3))
    rng = np.random.default_rng(0)
    shape = (args.num_examples, 32, 32, 3)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    labels = rng.integers(0, 10, args.num_examples)
    data = ct.data.ArrayData("random", {"test": (images, labels)})
    trainer = ct.training.Trainer(
        model,
        ct.losses.NLL(from_logits=True),
        keras.optimizers.SGD(),
        jit_compile=False,
    )
    in_memory = data.eval_batches("test", BATCH_SIZE).cache()
    per_image = 1e6 / args.num_examples
    print(
        f"{args.model}, {args.num_examples} images per set, severity "
        f"{args.severity}; microseconds per image\n"
    )
    for corruption in args.corruptions:
        corrupt = ct.data.corruptions.get(corruption, args.severity)

        def make(corrupt=corrupt):
            for start in range(0, args.num_examples, BATCH_SIZE):
                few = images[start : start + BATCH_SIZE]
                corrupt(few, np.arange(start, start + len(few)))

        made = np.median(seconds(make)) * per_image
        print(f"{corruption:<20}{made:>10.0f}", flush=True)
    print(f"\n{'':<20}{'network':>10}{'all':>10}{'share':>10}")

    def row(label, sets, shifts):
        def network():
            for _ in shifts:
                trainer.predict(in_memory)

        def whole():
            for shift in shifts:
                trainer.predict(sets.eval_input(*shift, BATCH_SIZE))

        turns = seconds(network, whole)
        share = np.median(turns[:, 0] / turns[:, 1])
        micros = np.median(turns, axis=0) * per_image / len(shifts)
        cells = "".join(f"{value:>10.0f}" for value in micros)
        print(f"{label:<20}{cells}{share:>10.0%}", flush=True)

    shifts = [(corruption, args.severity) for corruption in args.corruptions]
    row("made", ct.data.GeneratedSets(data), shifts)
    with tempfile.TemporaryDirectory() as folder:
        severities = ct.data.corruptions.SEVERITIES
        np.save(f"{folder}/fog.npy", np.concatenate([images] * len(severities)))
        np.save(f"{folder}/labels.npy", np.tile(labels, len(severities)))
        stored = ct.data.shifted_sets(data, corrupted_dir=folder, names=["fog"])
        row("stored", stored, [("fog", level) for level in severities])


if __name__ == "__main__":
    main()
