"""Sums in float32 that do not drift, however many terms they have.

A float32 sum of 4,000,000 ones and more stops growing at 16,777,216, and long
before that loses the digits of its terms. float64 is no way out: TPUs and JAX
do not have it by default. So a sum is kept as two float32: what is rounded away
when a term is added is computed exactly, and kept in the second.
"""


def add(high, low, value):
    """Adds `value` to the sum `high + low`.

    Args:
        high: The rounded sum so far.
        low: What rounding has taken from it.
        value: The next term.

    Returns:
        The new `(high, low)`.
    """
    total = high + value
    added = total - high
    low = low + ((high - (total - added)) + (value - added))
    # What has gathered in `low` moves up, so that it stays small beside `high`
    # and loses nothing itself.
    high = total + low
    return high, low - (high - total)
