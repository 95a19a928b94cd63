"""Predictions of networks: distributed inference, and files that store them."""

import hashlib
import io
import json
import os
import warnings
import zipfile

import numpy as np
import tensorflow as tf

from caltrain_tf import files
from caltrain_tf.data.corruptions import EXTRA_NAMES, NAMES, SEVERITIES
from caltrain_tf.inputs import check_predictions

# Batches per call on an accelerator, which is idle between calls.
_BATCHES_PER_CALL = 8


class Inference:
    """Runs a network over batches, on all replicas of a strategy.

    The host that runs this program computes the batches and gives each replica
    its rows. With several workers, each computes only its own rows.

    Args:
        model: A Keras model, which runs in inference mode, or a function from a
            batch of images to logits. With several replicas, its variables must
            be created inside `strategy.scope()`.
        strategy: A `tf.distribute.Strategy`; the current one if None.
        batches_per_call: How many batches the network processes in one call. If
            None, 8 with an accelerator and 1 without.

    Attributes:
        shard: (index, count): the index of this worker and the number of
            workers. The worker computes this shard of each global batch.
    """

    def __init__(self, model, strategy=None, batches_per_call=None):
        self._strategy = strategy or tf.distribute.get_strategy()
        self._model = model
        if batches_per_call is None:
            devices = tf.config.list_logical_devices()
            has_accelerator = any(d.device_type != "CPU" for d in devices)
            batches_per_call = _BATCHES_PER_CALL if has_accelerator else 1
        self._batches_per_call = batches_per_call
        self._num_replicas = self._strategy.num_replicas_in_sync
        self.shard = (0, 1)
        self._local_ids = [0]
        if self._num_replicas > 1:
            self._local_ids = []
            self._distributed(
                lambda index: self._local_ids.append(index) or tf.zeros([])
            )
            local = len(self._local_ids)
            self.shard = (
                self._local_ids[0] // local,
                self._num_replicas // local,
            )
        self._call = tf.function(self._call_replicas)

    def predict(self, make_batches, batch_size, count=None):
        """Returns the logits and labels of examples whose weight is above 0.

        Args:
            make_batches: A function of a batch size and a `shard`, as in
                `ImageData.eval_batches`, that returns a dataset of (image,
                label, weight).
            batch_size: Size of the global batch. It is rounded up to a multiple
                of the number of replicas.
            count: The largest number of examples to return.

        Returns:
            Arrays `(logits, labels)`.
        """
        batch_size = -(-batch_size // self._num_replicas) * self._num_replicas
        dataset = make_batches(batch_size, shard=self.shard)
        if count is not None:
            dataset = dataset.take(-(-count // batch_size))
        if self._batches_per_call > 1:
            dataset = dataset.batch(self._batches_per_call).prefetch(1)
        # Results are read at the end, so that an accelerator runs while the
        # next batch is prepared.
        results = []
        # In a comprehension, the traceback of an error would keep the iterator
        # alive. A program that ends with such an error would deadlock, because
        # it waits for the pipeline and the pipeline waits for Python.
        for batch in dataset:
            results.append(self._call(*self._cut(batch)))
        logits, labels, weights = (
            np.concatenate([self._collect(value) for value in values])
            for values in zip(*results, strict=True)
        )
        kept = weights > 0
        return logits[kept][:count], labels[kept][:count]

    def _call_replicas(self, images, labels, weights):
        def forward(images):
            if hasattr(self._model, "trainable_variables"):
                logits = self._model(images, training=False)
            else:
                logits = self._model(images)
            return tf.cast(logits, tf.float32)

        def run(images, labels, weights):
            if self._batches_per_call == 1:
                return forward(images), labels, weights
            logits = tf.map_fn(forward, images, fn_output_signature=tf.float32)
            return logits, labels, weights

        return self._strategy.run(run, args=(images, labels, weights))

    def _cut(self, batch):
        """Gives each replica its rows of this worker's part of a batch."""
        if self._num_replicas == 1:
            return batch
        axis = self._rows_axis
        parts = [tf.split(x, len(self._local_ids), axis) for x in batch]
        return [
            self._distributed(
                lambda index, each=each: each[index - self._local_ids[0]]
            )
            for each in parts
        ]

    def _collect(self, value):
        """Returns the rows of all replicas of all workers, in order."""
        axis = self._rows_axis
        if self._num_replicas == 1:
            rows = value
        elif self.shard[1] > 1:
            rows = self._strategy.gather(value, axis)
        else:
            parts = self._strategy.experimental_local_results(value)
            rows = np.concatenate([part.numpy() for part in parts], axis)
        rows = np.asarray(rows)
        return rows if axis == 0 else rows.reshape(-1, *rows.shape[2:])

    @property
    def _rows_axis(self):
        return 0 if self._batches_per_call == 1 else 1

    def _distributed(self, value_of):
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: value_of(context.replica_id_in_sync_group)
        )


def save_predictions(path, logits, labels, dtype="float32"):
    """Writes `logits` and `labels` as an `.npz` file, atomically.

    Args:
        path: The file, local or in a bucket.
        logits: `(examples, classes)`.
        labels: Class ids `(examples,)`, stored as int64.
        dtype: Data type of the stored logits, `"float32"` or `"float16"`.
    """
    logits, labels = check_predictions(
        as_kept(logits, dtype), labels, from_logits=True, name="logits"
    )
    content = io.BytesIO()
    np.savez(
        content,
        logits=np.asarray(logits, dtype),
        labels=np.asarray(labels, "int64"),
    )
    files.write_bytes(path, content.getvalue())


def load_predictions(path):
    """Reads a file written by `save_predictions`.

    Args:
        path: The file, local or in a bucket.

    Returns:
        `(logits, labels)`, where the logits are float32.
    """
    content = io.BytesIO(files.as_path(path).read_bytes())
    try:
        with np.load(content, allow_pickle=False) as arrays:
            logits, labels = arrays["logits"], arrays["labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise ValueError(
            "`path` must be a predictions file with the arrays `logits` and "
            f"`labels`: {e}. Received: path={os.fspath(path)!r}"
        ) from e
    if logits.dtype == np.float16:
        logits = logits.astype(np.float32)
    return check_predictions(logits, labels, from_logits=True, name="logits")


def as_kept(logits, dtype):
    """Returns logits in float32, rounded as if they were stored and read.

    Args:
        logits: An array.
        dtype: `"float32"` or `"float16"`, or `"no"` if they are not stored.
    """
    logits = np.asarray(logits, np.float32)
    if dtype != "float16":
        return logits
    if np.abs(logits[np.isfinite(logits)]).max(initial=0) > 65504:
        raise ValueError(
            "`logits` must be within 65504 of 0 to be kept as float16. "
            "Received: larger ones"
        )
    return logits.astype(np.float16).astype(np.float32)


class PredictionStore:
    """A folder of predictions files; it may be None.

    `shift.json` in the folder describes what the predictions of corrupted sets
    depend on. If it differs from `description`, they are removed.

    Args:
        folder: The folder, local or in a bucket; None to store nothing.
        description: What the predictions depend on, of JSON types.
        keep: How to store the predictions of corrupted sets: `"float32"`,
            `"float16"` or `"no"`. Those of clean sets are always float32.
        is_chief: Whether this process writes; only one of several workers does.
    """

    def __init__(self, folder, description, keep="float32", is_chief=True):
        if keep not in ("float32", "float16", "no"):
            raise ValueError(
                "`keep_predictions` must be 'float32', 'float16' or 'no'. "
                f"Received: keep_predictions={keep!r}"
            )
        self._folder = None if folder is None else files.as_path(folder)
        self._keep = keep
        self._is_chief = is_chief
        self._is_other = False
        if self._folder is None:
            return
        if keep == "float16":
            description = {**description, "logits": keep}
        # The types that the file is read with.
        description = json.loads(json.dumps(description))
        path = self._folder / "shift.json"
        if _read_json(path) == description:
            return
        # Other workers do not wait for the chief, so they must not read files.
        self._is_other = not is_chief
        if is_chief:
            self._remove_shifted()
            files.write_text(path, json.dumps(description, indent=1) + "\n")

    def clean(self, split, compute, is_of_network):
        """Returns the predictions of a clean split.

        The stored predictions may come from training, which `shift.json` does
        not describe. If they are of another network, they are computed again
        with a warning, and the predictions of corrupted sets are removed.

        Args:
            split: `"calibration"` or `"test"`.
            compute: Function without arguments that computes the predictions if
                they are not stored.
            is_of_network: Function of the stored logits and labels that returns
                whether they are of this network.

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
            self._is_other = not self._is_chief
            if self._is_chief:
                self._remove_shifted()
        predictions = compute()
        self._save(split, *predictions, "float32")
        return predictions

    def shifted(self, corruption, severity):
        """Returns the stored `(logits, labels)` of a corrupted set, or None.

        Args:
            corruption: Name of the corruption.
            severity: Severity, from 1 to 5.
        """
        if self._is_other:
            return None
        return self._load(f"{corruption}_{severity}")

    def keep_shifted(self, corruption, severity, logits, labels):
        """Saves the predictions of a corrupted set, unless `keep` is "no".

        Returns:
            `(logits, labels)` as they would be read from the file, so that
            results do not depend on whether predictions were stored.
        """
        logits = as_kept(logits, self._keep)
        if self._keep != "no":
            name = f"{corruption}_{severity}"
            self._save(name, logits, labels, self._keep)
        return logits, labels

    def _load(self, name):
        if self._folder is None:
            return None
        try:
            return load_predictions(self._folder / f"{name}.npz")
        except (FileNotFoundError, ValueError):
            # Missing or damaged.
            return None

    def _save(self, name, logits, labels, dtype):
        if self._folder is not None and self._is_chief:
            path = self._folder / f"{name}.npz"
            save_predictions(path, logits, labels, dtype)

    def _remove_shifted(self):
        for name in NAMES + EXTRA_NAMES:
            for severity in SEVERITIES:
                path = self._folder / f"{name}_{severity}.npz"
                path.unlink(missing_ok=True)


def weights_digest(model):
    """Returns a hash of a network's weights.

    Args:
        model: A Keras model, or anything else with `weights` or `variables`.

    Returns:
        Hexadecimal digits, or None for a function without either.

    Example:
        >>> module = tf.Module()
        >>> module.scale = tf.Variable([1.0, 2.0])
        >>> before = weights_digest(module)
        >>> _ = module.scale.assign([1.0, 2.5])
        >>> weights_digest(module) == before
        False
        >>> _ = module.scale.assign([1.0, 2.0])
        >>> weights_digest(module) == before
        True
        >>> print(weights_digest(abs))
        None
    """
    # The `variables` of a Keras model include the states of random generators
    # and metrics, which change with every use.
    weights = getattr(model, "weights", getattr(model, "variables", None))
    if weights is None:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for weight in weights:
        values = np.ascontiguousarray(weight.numpy())
        digest.update(f"{values.dtype.name} {values.shape} ".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _read_json(path):
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
