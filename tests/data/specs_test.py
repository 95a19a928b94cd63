import pytest

from caltrain_tf.data import parts
from caltrain_tf.data.specs import SPECS

# Stored and used examples, of the data sets as they are published.
SIZES = {
    "cifar10": {"train": 50_000, "test": 10_000},
    "cifar100": {"train": 50_000, "test": 10_000},
    "imagenet": {"train": 1_281_167, "validation": 50_000, "test": 100_000},
    "digits": {"train": 1437, "test": 360},
}
USED = {
    "cifar10": (45_000, 5_000, 10_000),
    "cifar100": (45_000, 5_000, 10_000),
    "imagenet": (1_255_544, 25_623, 50_000),
    "digits": (1150, 287, 360),
}


@pytest.mark.parametrize("name", sorted(SPECS))
def test_splits_are_disjoint_and_as_documented(name):
    splits = SPECS[name].splits
    assert list(splits) == ["train", "calibration", "test"]
    used = {
        split: parts.parse(text, SIZES[name]) for split, text in splits.items()
    }
    parts.check_disjoint(used)
    assert tuple(part.size for part in used.values()) == USED[name]
    # Nothing of the training set is lost between two of its parts.
    assert used["calibration"].start == used["train"].stop
    assert used["calibration"].stop == SIZES[name]["train"]
