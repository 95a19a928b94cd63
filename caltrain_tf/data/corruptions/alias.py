"""Draws from tables of probabilities, by the alias method.

Reference:
    Walker, "An efficient method for generating discrete random variables with
    general distributions", 1977.
"""

import numpy as np

_SIZE = 256


def alias_table(probabilities):
    """Prepares 256 distributions over 256 outcomes for `choose`.

    A distribution is cut into 256 parts of one size, each of at most two
    outcomes: the part's own, and its alias.

    Args:
        probabilities: `(256, 256)`, rows that sum to 1.

    Returns:
        uint32 `(65536,)`: for each part the share of its own outcome in the
        upper 24 bits, and its alias in the lower 8.
    """
    weights = np.asarray(probabilities, float) * _SIZE
    row = np.arange(_SIZE)
    heavy = weights > 1
    lights = np.argsort(heavy, axis=1, kind="stable")
    heavies = np.argsort(~heavy, axis=1, kind="stable")
    num_heavy = heavy.sum(axis=1)
    num_light = _SIZE - num_heavy
    shares = np.ones((_SIZE, _SIZE))
    aliases = np.tile(row, (_SIZE, 1))
    light, big = np.zeros((2, _SIZE), int)
    # What is left of the present heavy outcome, in parts.
    rest = weights[row, heavies[:, 0]]
    for _ in range(_SIZE):
        is_last = big >= num_heavy - 1
        # A light outcome's part is filled up by the heavy one; a heavy one of
        # which less than a part is left, by the next.
        fills = (light < num_light) & ((rest > 1) | is_last)
        following = heavies[row, np.minimum(big + 1, _SIZE - 1)]
        part = np.where(
            fills,
            lights[row, np.minimum(light, _SIZE - 1)],
            heavies[row, np.minimum(big, _SIZE - 1)],
        )
        donor = np.where(fills, heavies[row, big], following)
        share = np.where(fills, weights[row, part], rest)
        full = ~fills & is_last
        shares[row, part] = np.where(full, 1.0, share)
        aliases[row, part] = np.where(full, part, donor)
        rest = np.where(
            fills, rest - (1 - share), rest + weights[row, following] - 1
        )
        light = light + fills
        big = np.minimum(big + ~fills, _SIZE - 1)
    # A part that is all its own is its own alias.
    aliases = np.where(shares >= 1, row, aliases)
    levels = np.clip(np.round(shares * 2**24), 0, 2**24 - 1)
    return (levels.astype(np.uint32) << 8 | aliases.astype(np.uint32)).ravel()


def choose(table, rows, bits):
    """Draws from the distributions of a table.

    Args:
        table: Of `alias_table`.
        rows: Which distribution, uint8 of any shape.
        bits: Random uint32 of the same shape.

    Returns:
        Outcomes, uint8 of the same shape, with their probabilities to 24 bits.
    """
    parts = bits.astype(np.uint8)
    # 256 * row + part.
    places = rows.astype(np.uint16)
    places <<= np.uint16(8)
    places |= parts
    entries = table.take(places, mode="wrap")
    # The upper 24 bits decide. Without branches, which nobody can predict.
    outcomes = entries.astype(np.uint8)
    outcomes ^= (outcomes ^ parts) * (bits < entries)
    return outcomes
