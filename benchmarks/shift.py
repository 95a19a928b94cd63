"""Share of the pure forward pass in the shift benchmark's time.

    python benchmarks/shift.py [model]

The network, WRN-10-1 of the quickstart when none is named, runs over 1,024
corrupted images of 32 x 32 pixels, and as often over a batch that is in memory.
Times are those of the processor, summed over its cores, which other programs
disturb little. 100% means that images cost nothing. `stored` are images as of
the published arrays; the others are made on the fly.
"""

import statistics
import sys
import tempfile
import time

import numpy as np

import caltrain_tf as ct
from caltrain_tf.evaluation.shift import _compiled
from caltrain_tf.evaluation.shift import _predict

NUM_IMAGES = 1024
BATCH_SIZE = 256
REPEATS = 2
SEVERITY = 3


def seconds(function):
    """Returns the processor's time for a call after the first."""
    function()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


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


def main():
    """Prints a row for each corruption."""
    name = sys.argv[1] if len(sys.argv) > 1 else "wrn-10-1"
    model = ct.models.get(name, num_classes=10, input_shape=(32, 32, 3))
    rng = np.random.default_rng(0)
    shape = (NUM_IMAGES, 32, 32, 3)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    labels = rng.integers(0, 10, NUM_IMAGES)
    data = ct.data.ArrayData("random", {"test": (images, labels)})
    infer = _compiled(model)
    batch = next(iter(data.eval_batches("test", BATCH_SIZE)))[0]

    def forward():
        for _ in range(NUM_IMAGES // BATCH_SIZE):
            infer(batch).numpy()

    generated = ct.data.GeneratedSets(data)
    print(f"{name}\n{'':<20}{'forward':>12}{'all':>12}{'share':>8}")
    shares = []

    def row(label, sets, corruption):
        # Together, since other programs may disturb either.
        alone = seconds(forward)
        dataset = sets.batches(corruption, SEVERITY, BATCH_SIZE)
        whole = seconds(lambda: _predict(infer, dataset))
        shares.append(alone / whole)
        print(
            f"{label:<20}{1e6 * alone / NUM_IMAGES:>9.0f} us"
            f"{1e6 * whole / NUM_IMAGES:>9.0f} us{shares[-1]:>8.0%}",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as folder:
        row("stored", stored_sets(folder, images, labels), "fog")
    shares.clear()
    for corruption in ct.data.corruptions.NAMES:
        row(corruption, generated, corruption)
    print(f"{'mean on the fly':<44}{statistics.mean(shares):>8.0%}")


if __name__ == "__main__":
    main()
