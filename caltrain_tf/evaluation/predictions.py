"""What a network says of each example: computed once, kept in files."""

import hashlib
import io
import json
import os
import warnings
import zipfile

import numpy as np
import tensorflow as tf

from caltrain_tf import files
from caltrain_tf.data.corruptions import EXTRA_NAMES
from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.data.corruptions import SEVERITIES
from caltrain_tf.metrics.inputs import check_predictions

# Of one call of the network on an accelerator, which waits between calls.
_BATCHES_PER_CALL = 8


class Inference:
    """Runs a network over batches, on all replicas of a strategy.

    The host that runs this program makes the batches and hands each replica its
    rows. Of several workers, each makes its own rows.

    Args:
        model: A Keras model, which runs in inference mode, or a function from a
            batch of images to logits. With several replicas, its variables are
            made inside `strategy.scope()`.
        strategy: A `tf.distribute.Strategy`; the current one if None.
        batches_per_call: How many batches the network takes in one call: 8
            where there is an accelerator, else 1, if None.

    Attributes:
        shard: (index, count): this worker, and the number of workers. It makes
            those rows of each global batch.
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
            make_batches: A function of a batch size and a `shard`, as of
                `ImageData.eval_batches`, that returns a dataset of (image,
                label, weight).
            batch_size: Size of the global batch. It is rounded up to a multiple
                of the number of replicas.
            count: How many examples are returned at most.

        Returns:
            Arrays `(logits, labels)`.
        """
        batch_size = -(-batch_size // self._num_replicas) * self._num_replicas
        dataset = make_batches(batch_size, shard=self.shard)
        if count is not None:
            dataset = dataset.take(-(-count // batch_size))
        if self._batches_per_call > 1:
            dataset = dataset.batch(self._batches_per_call).prefetch(1)
        # Read at the end: an accelerator runs while the next batch is made.
        results = []
        # Not a comprehension, whose frame would keep the iterator in an error's
        # traceback. A program that such an error ends waits for a pipeline that
        # waits for Python, for ever.
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
    """Writes `logits` and `labels` as an `.npz` file, whole or not at all.

    Args:
        path: The file, local or of a bucket.
        logits: `(examples, classes)`.
        labels: Class ids `(examples,)`, kept as int64.
        dtype: In which logits are kept, `"float32"` or `"float16"`.
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
    """Reads a file of `save_predictions`.

    Args:
        path: The file, local or of a bucket.

    Returns:
        `(logits, labels)`, the former float32.
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
    """Returns logits in float32, with the rounding of how they are kept.

    Args:
        logits: An array.
        dtype: `"float32"` or `"float16"`, or `"no"` where they are not kept.
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
    """A folder of predictions files, or none.

    `shift.json` in it says what the predictions of corrupted sets are of. Where
    it says something else, they are removed.

    Args:
        folder: The folder, local or of a bucket; None to keep nothing.
        description: What predictions depend on, of JSON types.
        keep: How the predictions of corrupted sets are kept: `"float32"`,
            `"float16"` or `"no"`. Clean ones are always float32.
        is_chief: Whether this process writes; of several workers, one does.
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
        # As it comes back from the file.
        description = json.loads(json.dumps(description))
        path = self._folder / "shift.json"
        if _read_json(path) == description:
            return
        # Workers that do not write wait for nobody: they read nothing.
        self._is_other = not is_chief
        if is_chief:
            self._remove_shifted()
            files.write_text(path, json.dumps(description, indent=1) + "\n")

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
            self._is_other = not self._is_chief
            if self._is_chief:
                self._remove_shifted()
        predictions = compute()
        self._save(split, *predictions, "float32")
        return predictions

    def shifted(self, corruption, severity):
        """Returns `(logits, labels)` of a corrupted set, or None.

        Args:
            corruption: Its name.
            severity: Severity, from 1 to 5.
        """
        if self._is_other:
            return None
        return self._load(f"{corruption}_{severity}")

    def keep_shifted(self, corruption, severity, logits, labels):
        """Saves the predictions of a corrupted set, if they are kept.

        Returns:
            `(logits, labels)` as they are read later, so that results do not
            depend on whether predictions were there.
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
            # Not there, or damaged.
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
    # Of a Keras model, `variables` are also states of random numbers and
    # metrics, which change with every use.
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
