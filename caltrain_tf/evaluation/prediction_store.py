"""Predictions that are computed once."""

import json
import os
import pathlib

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
        for name in NAMES + EXTRA_NAMES:
            for severity in SEVERITIES:
                (self._folder / f"{name}_{severity}.npz").unlink(True)
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(description, indent=1) + "\n")
        os.replace(temporary, path)

    def clean(self, split, compute):
        """Returns the predictions of a clean split.

        Args:
            split: `"calibration"` or `"test"`.
            compute: Called without arguments where they are not there.

        Returns:
            `(logits, labels)`.
        """
        return self._get(split, compute)

    def shifted(self, corruption, severity, compute):
        """Returns the predictions of a corrupted set; see `clean`."""
        return self._get(f"{corruption}_{severity}", compute)

    def _get(self, name, compute):
        if self._folder is None:
            return compute()
        path = self._folder / f"{name}.npz"
        try:
            return load_predictions(path)
        except (FileNotFoundError, ValueError):
            # Not there, or damaged.
            predictions = compute()
        save_predictions(path, *predictions)
        return predictions


def _read(path):
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
