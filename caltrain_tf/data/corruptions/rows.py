"""Corruptions of a few images at a time."""

import itertools

import numpy as np

# So few that intermediate results stay in the processor's second cache, so
# many that the calls of NumPy's functions cost little.
_VALUES_AT_ONCE = 2**17


def by_rows(function):
    """Returns a function that goes through a batch a few images at a time.

    What is in the cache costs a fraction of what each operation would need that
    goes through the whole batch in memory.

    Args:
        function: From arrays of a few images, their `Draws` and other arguments
            to new images of the same shape and type. An image must not depend
            on the others.

    Example:
        >>> from caltrain_tf.data.corruptions.draws import Draws
        >>> def invert(images, draws, white):
        ...     return white - images
        >>> images = np.array([[[[1, 2, 3]]], [[[4, 5, 6]]]])
        >>> by_rows(invert)(images, Draws([0, 1], 0), white=9).tolist()
        [[[[8, 7, 6]]], [[[5, 4, 3]]]]
    """

    def whole(images, draws, *args, **options):
        result = np.empty_like(images)
        # Of about one size: the calls for a few that are left cost as much.
        num_parts = min(
            max(1, round(images.size / _VALUES_AT_ONCE)), len(images)
        )
        bounds = np.linspace(0, len(images), num_parts + 1).astype(int)
        for start, stop in itertools.pairwise(bounds):
            rows = slice(start, stop)
            result[rows] = function(
                images[rows], draws.of_rows(rows), *args, **options
            )
        return result

    return whole
