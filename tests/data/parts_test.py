import numpy as np
import pytest

from caltrain_tf.data import parts

SIZES = {"train": 1797, "test": 10}


def read_by_tfds(split):
    """The same by the library whose syntax it is."""
    import tensorflow_datasets as tfds

    instruction = tfds.core.ReadInstruction.from_spec(split)
    infos = {
        name: tfds.core.SplitInfo(
            name=name,
            shard_lengths=[size],
            num_bytes=0,
            filename_template=None,
        )
        for name, size in SIZES.items()
    }
    (absolute,) = instruction.to_absolute(infos)
    start = 0 if absolute.from_ is None else absolute.from_
    stop = SIZES[absolute.splitname] if absolute.to is None else absolute.to
    return parts.Part(absolute.splitname, start, stop)


def test_it_reads_what_tensorflow_datasets_reads():
    rng = np.random.default_rng(0)
    splits = ["train", "test", "train[1_000:]", "train[-3:]"]
    for percent in rng.integers(1, 100, 60):
        splits += [f"train[:{percent}%]", f"train[-{percent}%:]"]
    for start, stop in np.sort(rng.integers(0, 1797, (20, 2)), axis=1):
        splits += [f"train[{start}:{stop + 1}]"]
    for split in splits:
        assert parts.parse(split, SIZES) == read_by_tfds(split), split


def test_a_part_is_written_in_the_same_syntax():
    part = parts.parse("train[10%:-5]", SIZES)
    assert parts.parse(str(part), SIZES) == part
    assert part.size == 1797 - 180 - 5


@pytest.mark.parametrize(
    "split",
    [
        "",
        "train[",
        "train[1:2:3]",
        "train[a:]",
        "train+test",
        "valid",
        "train[5:5]",
        "train[9:3]",
        "train[:1798]",
        "train[-1798:]",
        "train[:101%]",
        None,
    ],
)
def test_what_is_no_split_is_an_error(split):
    with pytest.raises(ValueError, match="Received: "):
        parts.parse(split, SIZES)


def test_parts_that_overlap_are_an_error():
    train = parts.Part("train", 0, 11)
    parts.check_disjoint(
        {"train": train, "calibration": parts.Part("train", 11, 12)}
    )
    parts.check_disjoint({"train": train, "test": parts.Part("test", 0, 10)})
    with pytest.raises(ValueError, match=r"train=train\[0:11\], cal"):
        parts.check_disjoint(
            {"train": train, "calibration": parts.Part("train", 10, 12)}
        )
