"""Devices and machines, and the batches that their replicas get."""

import contextlib
import inspect
import os
import shutil

import tensorflow as tf

from caltrain_tf import checks

# Batches prefetched while a step runs. With autotuning, the end of an epoch
# would wait for its thread.
_BATCHES_AHEAD = 2


def get_strategy(tpu=None, num_gpus=None, multi_worker=False):
    """Returns the `tf.distribute` strategy that the arguments describe.

    Without arguments, it uses every GPU of this machine, or its CPU if there
    are none. GPU memory growth is enabled, so that several runs can share a
    GPU; call this function before using the GPUs otherwise.

    Args:
        tpu: `"local"` for the TPU of this machine, or the name or address of
            a TPU or of a slice of a pod.
        num_gpus: How many GPUs of this machine to use; 0 for its CPU.
        multi_worker: Whether the same program runs on several machines, which
            are listed in the environment variable `TF_CONFIG` of each. It must
            then be the first call to TensorFlow in the program.

    Returns:
        A `tf.distribute.Strategy`.

    Example:
        >>> import caltrain_tf as ct
        >>> strategy = ct.training.get_strategy(num_gpus=0)
        >>> strategy.num_replicas_in_sync
        1
    """
    if (tpu, num_gpus, multi_worker or None).count(None) < 2:
        raise ValueError(
            "Only one of `tpu`, `num_gpus` and `multi_worker` can be used; "
            "with `multi_worker`, hide GPUs with CUDA_VISIBLE_DEVICES. "
            f"Received: {tpu=}, {num_gpus=}, {multi_worker=}"
        )
    if tpu is not None:
        return _tpu_strategy(tpu)
    for gpu in tf.config.list_physical_devices("GPU"):
        # A RuntimeError means that the GPU is already in use.
        with contextlib.suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(gpu, True)
    return (
        _multi_worker_strategy() if multi_worker else _local_strategy(num_gpus)
    )


def is_multi_worker(strategy):
    """Returns whether several Python processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy):
    """Returns whether this process writes the files of a run."""
    return strategy.extended.should_checkpoint


class TrainingInput:
    """The training batches of every epoch, distributed to the replicas."""

    def __init__(self, strategy, name, source, steps=None):
        self._strategy, self._name, self._source = strategy, name, source
        self._parameters = {}
        if callable(source):
            self._parameters = inspect.signature(source).parameters
        defaults = [each.default for each in self._parameters.values()]
        self._builds_on_host = defaults.count(inspect.Parameter.empty) > 1
        batches = tf.data.UNKNOWN_CARDINALITY
        if not self._builds_on_host:
            dataset = self._global_batches(0)
            batches = int(dataset.cardinality())
            replicas, size = strategy.num_replicas_in_sync, _batch_size(dataset)
            if replicas > 1 and (size is None or size % replicas):
                raise ValueError(
                    "Training batches must have one size, a multiple of the "
                    "replicas: `dataset.batch(size, drop_remainder=True)`. "
                    f"Received: batch size={size}, replicas={replicas}"
                )
        elif steps is None:
            # Building the dataset only to count its batches may take long.
            self.batches(0, 0)
            batches = self._host_batches
        self.steps = batches if steps is None else steps
        if self.steps < 1 or 0 <= batches < self.steps:
            raise ValueError(
                f"The number of batches of `{name}` is not known, or there are "
                f"too few or no end. Pass `{name}_steps`. "
                f"Received: {name}_steps={steps}, batches={batches}"
            )

    def batches(self, epoch, first_step):
        """Returns the distributed batches of an epoch from `first_step` on."""
        if not self._builds_on_host:
            dataset = self._global_batches(epoch).skip(first_step)
            return _distribute(self._strategy, dataset)

        def build(context):
            local = context.num_replicas_in_sync // context.num_input_pipelines
            options = {}
            if "first_step" in self._parameters:
                options["first_step"] = first_step
            dataset = self._checked(self._source(epoch, context, **options))
            if not options:
                dataset = dataset.skip(first_step * local)
            self._host_batches = int(dataset.cardinality()) // local
            return dataset.prefetch(_BATCHES_AHEAD)

        return self._strategy.distribute_datasets_from_function(build)

    def _global_batches(self, epoch):
        source = self._source
        return self._checked(source(epoch) if callable(source) else source)

    def _checked(self, dataset):
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(
                f"`{self._name}` must be a `tf.data.Dataset` or a callable "
                f"that returns one. Received: {dataset!r}"
            )
        return dataset


def evaluation_input(strategy, source):
    """Returns distributed batches `(x, y, weight)` of one size, in order.

    Missing labels are zeros. The first batch of the source is the largest.
    """
    if callable(source):
        return strategy.distribute_datasets_from_function(
            lambda context: _pad(source(context)).prefetch(_BATCHES_AHEAD)
        )
    padded = _pad(source, multiple=strategy.num_replicas_in_sync)
    return _distribute(strategy, padded)


def _distribute(strategy, dataset):
    """Gives replicas their parts of global batches, which every host reads."""
    replicas = strategy.num_replicas_in_sync

    def part_of_host(context):
        if replicas == 1:
            return dataset.prefetch(_BATCHES_AHEAD)
        rows = _batch_size(dataset) // replicas
        local = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local

        def cut(tensor):
            part = tensor[first * rows : (first + local) * rows]
            return tf.reshape(part, [local, rows, *tensor.shape[1:]])

        parts = dataset.map(
            lambda *batch: tf.nest.map_structure(cut, batch), tf.data.AUTOTUNE
        )
        return parts.unbatch().prefetch(_BATCHES_AHEAD)

    return strategy.distribute_datasets_from_function(part_of_host)


def _pad(dataset, multiple=1):
    """Pads all batches `(x, y, weight)` to one size, with weight 0."""
    size = _batch_size(dataset)
    if size is None:
        first = next(iter(dataset.take(1)), None)
        if first is None:
            raise ValueError("`dataset` must not be empty. Received: no batch")
        size = len(tf.nest.flatten(first)[0])
    size = -(-size // multiple) * multiple

    def pad_rows(tensor):
        missing = size - tf.shape(tensor)[0]
        widths = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        padded = tf.pad(tensor, widths)
        return tf.ensure_shape(padded, [size, *tensor.shape[1:]])

    def pad_batch(x, y=None, weight=None):
        rows = tf.shape(tf.nest.flatten(x)[0])[:1]
        y = tf.zeros(rows, tf.int64) if y is None else y
        weight = tf.ones(rows) if weight is None else weight
        weight = tf.reshape(tf.cast(weight, tf.float32), [-1])
        return tf.nest.map_structure(pad_rows, (x, y, weight))

    return dataset.map(pad_batch, num_parallel_calls=tf.data.AUTOTUNE)


def _batch_size(dataset):
    """Returns the static size of the dataset's batches, or None."""
    return tf.nest.flatten(dataset.element_spec)[0].shape[0]


def _tpu_strategy(tpu):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:
        raise ValueError(
            'No TPU was found. "local" needs a TPU VM and the TPU build of '
            "TensorFlow, `tensorflow-tpu`; finding a TPU by its name needs "
            "`cloud-tpu-client`. Without `tpu`, GPUs or the CPU are used. "
            f"Received: tpu={tpu!r}\nCause: {type(error).__name__}: {error}"
        ) from error


def _multi_worker_strategy():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if not resolver.cluster_spec():
        # TensorFlow would train on this machine alone.
        raise ValueError(
            "`multi_worker=True` needs the environment variable TF_CONFIG, "
            'such as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}. '
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


def _local_strategy(num_gpus):
    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    # An empty list, or -1, hides the GPUs on purpose.
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    has_driver = shutil.which("nvidia-smi")
    if has_driver and not hidden and not gpus and num_gpus != 0:
        checks.warn(
            "This machine has an NVIDIA GPU, but TensorFlow does not see it: "
            'pip install "tensorflow[and-cuda]". The CPU is used instead.'
        )
    if num_gpus is not None:
        checks.choice("num_gpus", num_gpus, range(len(gpus) + 1))
    gpus = gpus[:num_gpus]
    if len(gpus) > 1:
        return tf.distribute.MirroredStrategy(gpus)
    return tf.distribute.OneDeviceStrategy(gpus[0] if gpus else "CPU:0")
