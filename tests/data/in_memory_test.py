import socket
import subprocess
import sys

import numpy as np
import pytest

from caltrain_tf.data.in_memory import shift_and_flip


def test_another_process_reads_what_is_built_on_it(tmp_path):
    """A worker over gRPC, as `--tpu=<name>` has: nothing is captured here."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import socket, sys, numpy as np, tensorflow as tf\n"
        "import caltrain_tf as ct\n"
        "cluster = {'worker': [sys.argv[1]], 'chief': [sys.argv[2]]}\n"
        "if sys.argv[3] == 'worker':\n"
        "    tf.distribute.Server(cluster, 'worker', 0).join()\n"
        "tf.config.experimental_connect_to_cluster(\n"
        "    tf.train.ClusterSpec(cluster), 'chief', 0)\n"
        "device = '/job:worker/task:0/device:CPU:0'\n"
        "strategy = tf.distribute.OneDeviceStrategy(device)\n"
        "data = ct.data.get('digits', dtype='uint8')\n"
        "build = data.train_input(64, seed=1)\n"
        "step = tf.function(lambda x, y: (tf.identity(x), tf.identity(y)))\n"
        "examples = data._load(data._parts['train'])\n"
        "copies = []\n"
        "for epoch in (2, 3):\n"
        "    batches = strategy.distribute_datasets_from_function(\n"
        "        lambda context: build(epoch, context, first_step=10))\n"
        "    expected = data.train_batches(\n"
        "        64, seed=1, epoch=epoch, first_step=10)\n"
        "    for (x, y), batch in zip(expected, batches, strict=True):\n"
        "        images, labels = strategy.run(step, args=batch)\n"
        "        assert 'worker' in images.device, images.device\n"
        "        np.testing.assert_array_equal(x, images)\n"
        "        np.testing.assert_array_equal(y, labels)\n"
        "    copies.append([images for host, (images, _) in\n"
        "        examples._copies.items() if 'worker' in host])\n"
        # The images went to the worker once, and stayed there.
        "((first,), (second,)) = copies\n"
        "assert first is second and 'worker' in first.device\n"
        "print('the same')\n"
    )
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(f"localhost:{free.getsockname()[1]}")
    command = [sys.executable, str(script), *ports]
    worker = subprocess.Popen(
        [*command, "worker"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        done = subprocess.run(
            [*command, "chief"], capture_output=True, text=True, timeout=300
        )
    finally:
        worker.kill()
        worker.wait()
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "the same\n"


def one_by_one(images, shifts, flips, max_shift):
    margin = (max_shift, max_shift)
    results = []
    for image, (down, right), flip in zip(images, shifts, flips, strict=True):
        height, width, _ = image.shape
        padded = np.pad(image, (margin, margin, (0, 0)))
        top, left = max_shift + down, max_shift + right
        crop = padded[top : top + height, left : left + width]
        results.append(crop[:, ::-1] if flip else crop)
    return np.stack(results)


@pytest.mark.parametrize(
    "shape, max_shift", [((32, 32, 3), 4), ((5, 8, 1), 1), ((5, 8, 1), 0)]
)
def test_augmentation_equals_pad_crop_and_mirror_of_each_image(
    shape, max_shift
):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50, *shape), dtype=np.uint8)
    shifts = rng.integers(-max_shift, max_shift + 1, (50, 2)).astype("int32")
    flips = rng.random(50) < 0.5
    result = shift_and_flip(images, shifts, flips, max_shift)
    assert result.shape == images.shape
    np.testing.assert_array_equal(
        result, one_by_one(images, shifts, flips, max_shift)
    )
