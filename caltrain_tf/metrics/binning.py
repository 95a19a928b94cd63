"""Hard bins over an array: their edges, and sums of what falls into them."""

from typing import NamedTuple

import numpy as np

from caltrain_tf.metrics.blocks import map_blocks

# Comparing with every edge is faster than a binary search, up to some number.
MOST_COMPARED_EDGES = 64
# Rows of confidences that one thread takes at a time.
ROWS_PER_BLOCK = 32 * 1024


class Bins(NamedTuple):
    """Sums over the examples of each bin, float64 `(num_bins,)`."""

    count: np.ndarray
    confidence_sum: np.ndarray
    hits: np.ndarray

    @property
    def confidence(self):
        """The mean confidence; 0 in an empty bin."""
        return self.confidence_sum / np.maximum(self.count, 1)

    @property
    def accuracy(self):
        """The share of correct examples; 0 in an empty bin."""
        return self.hits / np.maximum(self.count, 1)

    @property
    def weight(self):
        """The share of all examples."""
        return self.count / self.count.sum()


def inner_edges(confidence, num_bins, binning):
    """The `num_bins - 1` values at which a next bin begins.

    Args:
        confidence: `(N,)`.
        num_bins: Number of bins.
        binning: `"equal_width"`: multiples of 1/num_bins. `"equal_mass"`: the
            sorted confidences at min(round(linspace(0, N, num_bins,
            endpoint=False)), N - 1), without the first.

    Returns:
        `(num_bins - 1,)`, not decreasing.
    """
    if binning == "equal_width":
        return equal_width_edges(num_bins)
    # A full sort of floats is vectorised in NumPy, and five times as fast as
    # a partition around 14 values.
    return np.sort(confidence)[edge_ranks(len(confidence), num_bins)]


def equal_width_edges(num_bins):
    """The multiples of 1/num_bins between 0 and 1.

    Not from linspace, whose 3/5 is the next number above 0.6.
    """
    return np.arange(1, num_bins) / num_bins


def edge_ranks(num_examples, num_bins):
    """Where in sorted confidences the second and later bins begin."""
    ranks = np.linspace(0, num_examples, num_bins, endpoint=False)
    ranks = np.minimum(np.round(ranks).astype(np.int64), num_examples - 1)
    return ranks[1:]


def bin_indices(confidence, edges):
    """The bin of each confidence: an edge belongs to the bin above it."""
    if len(edges) > MOST_COMPARED_EDGES:
        return np.searchsorted(edges, confidence, side="right")
    indices = np.zeros(len(confidence), np.uint8)
    for edge in edges:
        indices += confidence >= edge
    return indices


def sort_together(confidence, correct):
    """Both arrays in the order of the confidences.

    Confidences are not negative, so that their bits sort like integers, and
    below 2, so that the highest bits are free: correctness fits in beside them.
    One sort of integers is several times as fast as `argsort`.
    """
    integers = np.dtype(f"u{confidence.itemsize}")
    packed = confidence.view(integers) << 1
    packed |= correct
    packed.sort()
    correct = (packed & 1).astype(bool)
    packed >>= 1
    return packed.view(confidence.dtype), correct


def fill_bins(confidence, correct, edges):
    """Sums the examples into bins.

    Args:
        confidence: `(N,)`.
        correct: Booleans `(N,)`.
        edges: From `inner_edges`.

    Returns:
        `Bins`.
    """
    num_bins = len(edges) + 1

    def sums(start, stop):
        part = confidence[start:stop]
        # Made once here: bincount would make it anew each time.
        indices = bin_indices(part, edges).astype(np.intp)
        hits = indices[correct[start:stop]]
        return (
            np.bincount(indices, minlength=num_bins),
            np.bincount(indices, weights=part, minlength=num_bins),
            np.bincount(hits, minlength=num_bins),
        )

    # 64 bytes: what a confidence costs with its index and temporaries.
    parts = map_blocks(
        sums, len(confidence), 64, block_bytes=64 * ROWS_PER_BLOCK
    )
    return Bins(
        *(
            np.sum(part, axis=0, dtype=np.float64)
            for part in zip(*parts, strict=True)
        )
    )
