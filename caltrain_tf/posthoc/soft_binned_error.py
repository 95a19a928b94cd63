"""The soft-binned calibration error, on confidences and in NumPy."""

import numpy as np

from caltrain_tf.metrics.blocks import map_blocks

# The smallest bin mass that is divided by, as in `losses.sb_ece`.
SMALLEST_MASS = 1e-5
# Of numbers whose exponentials are far from overflowing float64.
LARGEST_EXPONENT = 600.0


class SoftBinnedError:
    """SB-ECE in the l2 norm over soft bins on [0, 1]; see `losses.sb_ece`."""

    def __init__(self, num_bins, temperature, binning):
        """Takes the options of `losses.sb_ece` of the same names."""
        self.centres = (np.arange(num_bins) + 0.5) / num_bins
        self.temperature = temperature
        self.binning = binning

    def __call__(self, confidence, correct):
        """The error of confidences `(N,)` that were right or wrong `(N,)`.

        Both kinds of bins need only the sums of u, u c, u a and u c^2 over the
        examples, where u is the membership, c the confidence and a is 1 for a
        correct prediction. For a bin of accuracy A,
        sum u (A - c)^2 = A^2 sum u - 2 A sum u c + sum u c^2.
        """
        count = len(confidence)

        def block(start, stop):
            c, a = confidence[start:stop], correct[start:stop]
            membership = self._membership(c)
            share = 1.0 / membership.sum(axis=0)
            columns = np.stack([share, share * c, share * a, share * c * c])
            return columns @ membership.T

        row_bytes = confidence.itemsize * len(self.centres)
        sums = np.sum(map_blocks(block, count, row_bytes), axis=0)
        mass, confidences, hits, squares = sums
        divisor = np.maximum(mass, SMALLEST_MASS)
        if self.binning == "bin":
            total = np.sum((hits - confidences) ** 2 * mass / divisor**2)
        else:
            accuracy = hits / divisor
            total = np.sum(
                accuracy**2 * mass - 2 * accuracy * confidences + squares
            )
        return np.sqrt(max(total, 0.0) / count)

    def _membership(self, confidence):
        """exp(-(c - m)^2 / t) up to a factor of each example, `(bins, N)`.

        With the centres m = 1/2 + k w it is, up to such a factor,
        exp(-(k w)^2 / t) q^k with q = exp(2 (c - 1/2) w / t): one exponential
        an example instead of one for each bin.
        """
        num_bins = len(self.centres)
        centred = confidence - 0.5
        if max(0.5, 1 / num_bins) / self.temperature > LARGEST_EXPONENT:
            distance = np.abs(confidence - self.centres[:, None])
            nearest = distance.min(axis=0)
            return np.exp((nearest**2 - distance**2) / self.temperature)
        offsets = self.centres - 0.5
        powers = np.empty((num_bins, len(confidence)))
        np.exp(centred * (2.0 * offsets[0] / self.temperature), out=powers[0])
        ratio = np.exp(centred * (2.0 / num_bins / self.temperature))
        for k in range(1, num_bins):
            np.multiply(powers[k - 1], ratio, out=powers[k])
        powers *= np.exp(-(offsets**2) / self.temperature)[:, None]
        return powers
