"""Images that are changed on their way, in one way or in several."""

import itertools
import os

import tensorflow as tf

from caltrain_tf.data.devices import is_processor_alone
from caltrain_tf.data.finished import finished
from caltrain_tf.data.in_threads import in_threads

# Kept ready while a network runs; more would only take memory.
BATCHES_AHEAD = 2
# A network of any use takes several times as long as its images.
_CORES_A_CALL = 8


def transformed(dataset, transform):
    """Changes the images of a dataset of (images, labels, places).

    Args:
        dataset: With uint8 images `(batch, height, width, channels)`.
        transform: From such images and their places `(batch,)` to images of the
            same shape.
    """

    def change(images, labels, places):
        result = transform(images, places)
        return tf.ensure_shape(result, images.shape), labels, places

    return dataset.map(change, num_parallel_calls=_calls_at_once())


class Passes:
    """The first batches, once for each of several transforms.

    A dataset of its own for each would cost tens of milliseconds, while which a
    network waits: here the next one's batches are made while those of the last
    are in use.

    They are made by threads of Python. An input pipeline that calls Python
    would keep a program from its end that an error stops in the middle: it
    waits for a call that the interpreter has given up.

    Args:
        examples: An object with `eval_batches`, as of `InMemoryImages`, or with
            `array_batches`, as there; that is opened at once.
        batch_size: Of the batches.
        transforms: A sequence of functions as in `transformed`. They are called
            with arrays or eager tensors.
        num_batches: Of each pass.
        finish: From a batch's images, labels and places to what is returned.

    Attributes:
        image_shape: Of the images, `(height, width, channels)`.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> images = np.zeros((2, 1, 1, 3), np.uint8)
        >>> data = ct.data.ArrayData("mine", {"test": (images, [0, 1])})
        >>> whites = [lambda images, _, n=n: images + n for n in (51, 255)]
        >>> passes = data.eval_passes("test", 2, whites, num_batches=1)
        >>> [round(float(images[0, 0, 0, 0]), 3) for images, _, _ in passes]
        [0.2, 1.0]
    """

    def __init__(self, examples, batch_size, transforms, num_batches, finish):
        """See the class."""
        self._transforms = transforms
        self._num_batches = num_batches
        if hasattr(examples, "array_batches"):
            self._batches = _Repeated(
                lambda: examples.array_batches(batch_size),
                num_batches,
                len(transforms),
            )
            spec = [
                tf.TensorSpec(part.shape, part.dtype)
                for part in next(iter(self._batches))
            ]
        else:
            dataset = examples.eval_batches(batch_size, rows=range(batch_size))
            spec = dataset.element_spec
            dataset = dataset.take(num_batches).repeat(len(transforms))
            self._batches = finished(dataset, None, BATCHES_AHEAD)
        self.image_shape = tuple(spec[0].shape[1:])
        self._finish = tf.function(
            finish, input_signature=spec
        ).get_concrete_function()

    def __len__(self):
        """Returns the number of batches."""
        return len(self._transforms) * self._num_batches

    def __iter__(self):
        """Returns an iterator over them, one transform after the other."""
        return in_threads(
            self._made,
            enumerate(self._batches),
            _calls_at_once(),
            BATCHES_AHEAD,
        )

    def _made(self, item):
        index, (images, labels, places) = item
        transform = self._transforms[index // self._num_batches]
        # Whatever devices there are, images are made on the host.
        with tf.device("CPU:0"):
            changed = transform(images, places)
            if changed.shape != images.shape:
                raise ValueError(
                    "A transform must keep the images' shape, "
                    f"{tuple(images.shape)}. Received: {tuple(changed.shape)}"
                )
            return self._finish(
                *map(tf.convert_to_tensor, (changed, labels, places))
            )


class _Repeated:
    """The first batches, several times."""

    def __init__(self, batches, num_batches, num_passes):
        self._batches = batches
        self._num_batches = num_batches
        self._num_passes = num_passes

    def __iter__(self):
        for _ in range(self._num_passes):
            yield from itertools.islice(self._batches(), self._num_batches)


def _calls_at_once():
    """Returns how many batches are changed in parallel.

    Where the network needs the cores itself, no more than it can use: threads
    of Python that wait for each other take a fourth more of processor time.
    """
    num_cores = os.cpu_count()
    if is_processor_alone():
        return max(1, num_cores // _CORES_A_CALL)
    return num_cores
