"""Predictions that are computed once."""

import json
import os
import pathlib
import warnings

from caltrain_tf.data.corruptions import EXTRA_NAMES
from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.data.corruptions import SEVERITIES
from caltrain_tf.evaluation.predictions import load_predictions
from caltrain_tf.evaluation.predictions import save_predictions


class PredictionStore:
    """A folder of predictions files, or none.

    `shift.json` in it says what the predictions of corrupted sets are of. Where
    it says something else, they are removed.

    Args:
        folder: The folder, or None to keep nothing.
        description: What predictions depend on, of JSON types.
    """

    def __init__(self, folder, description):
        """Compares the description, and removes what is of another one."""
        self._folder = None if folder is None else pathlib.Path(folder)
        if self._folder is None:
            return
        # As it comes back from the file.
        description = json.loads(json.dumps(description))
        path = self._folder / "shift.json"
        if _read(path) == description:
            return
        self._remove_shifted()
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(description, indent=1) + "\n")
        os.replace(temporary, path)

    def clean(self, split, compute, is_of_network):
        """Returns the predictions of a clean split.

        They may be those of a training, of which `shift.json` says nothing.
        Where they are of another network, they are computed again, with a
        warning, and those of corrupted sets are removed.

        Args:
            split: `"calibration"` or `"test"`.
            compute: Called without arguments where they are not there.
            is_of_network: Called with the logits and labels that are there.

        Returns:
            `(logits, labels)`.
        """
        there = self._load(split)
        if there is not None and is_of_network(*there):
            return there
        if there is not None:
            warnings.warn(
                f"{self._folder / split}.npz is of another network or of other "
                "data, and is computed again.",
                stacklevel=4,
            )
            self._remove_shifted()
        predictions = compute()
        self._save(split, *predictions)
        return predictions

    def shifted(self, corruption, severity):
        """Returns `(logits, labels)` of a corrupted set, or None.

        Args:
            corruption: Its name.
            severity: Of 1 to 5.
        """
        return self._load(f"{corruption}_{severity}")

    def keep_shifted(self, corruption, severity, logits, labels):
        """Saves the predictions of a corrupted set."""
        self._save(f"{corruption}_{severity}", logits, labels)

    def _load(self, name):
        if self._folder is None:
            return None
        try:
            return load_predictions(self._folder / f"{name}.npz")
        except (FileNotFoundError, ValueError):
            # Not there, or damaged.
            return None

    def _save(self, name, logits, labels):
        if self._folder is not None:
            save_predictions(self._folder / f"{name}.npz", logits, labels)

    def _remove_shifted(self):
        for name in NAMES + EXTRA_NAMES:
            for severity in SEVERITIES:
                (self._folder / f"{name}_{severity}.npz").unlink(True)


def _read(path):
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
