"""Ranges of a data set's splits, as "train[:90%]" spells them."""

import re
from typing import NamedTuple

_SYNTAX = re.compile(r"(\w+)(?:\[(-?[\d_]+%?)?:(-?[\d_]+%?)?\])?")


class Part(NamedTuple):
    """The examples `start` to `stop` (not included) of a stored split."""

    stored: str
    start: int
    stop: int

    @property
    def size(self):
        """The number of examples."""
        return self.stop - self.start

    def overlaps(self, other):
        """Whether an example is in both parts."""
        return self.stored == other.stored and max(
            self.start, other.start
        ) < min(self.stop, other.stop)

    def __str__(self):
        """Returns the part in the syntax that `parse` reads."""
        return f"{self.stored}[{self.start}:{self.stop}]"


def parse(split, sizes):
    """Reads a split as TensorFlow Datasets does.

    Args:
        split: Such as `"train"`, `"train[:10000]"`, `"train[-20%:]"`. A
            percentage is rounded to the nearest example.
        sizes: The number of examples of each stored split.

    Returns:
        A `Part`.

    Example:
        >>> parse("train[90%:]", {"train": 50000})
        Part(stored='train', start=45000, stop=50000)
    """
    match = _SYNTAX.fullmatch(split) if isinstance(split, str) else None
    if match is None:
        raise ValueError(
            "A split must be such as 'train', 'train[:10000]' or "
            f"'train[90%:]'. Received: {split!r}"
        )
    stored, start, stop = match.groups()
    if stored not in sizes:
        raise ValueError(
            f"A split must be of one of {sorted(sizes)}. Received: {split!r}"
        )
    size = sizes[stored]
    part = Part(
        stored,
        0 if start is None else _position(start, size),
        size if stop is None else _position(stop, size),
    )
    if not 0 <= part.start < part.stop <= size:
        raise ValueError(
            f"A split must hold examples of the {size} of {stored!r}. "
            f"Received: {split!r}, which is {part}"
        )
    return part


def check_disjoint(parts):
    """Raises if two of the named parts share an example."""
    names = list(parts)
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            if parts[first].overlaps(parts[second]):
                raise ValueError(
                    f"The splits `{first}` and `{second}` must share no "
                    f"example. Received: {first}={parts[first]}, "
                    f"{second}={parts[second]}"
                )


def _position(text, size):
    if text.endswith("%"):
        position = round(int(text[:-1]) * size / 100)
    else:
        position = int(text)
    return position + size if position < 0 else position
