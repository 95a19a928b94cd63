"""Where a model is trained: one device, several, or several machines."""

import json
import os

import tensorflow as tf


def get_strategy(tpu=None, num_gpus=None, multi_worker=False):
    """Returns the `tf.distribute` strategy that the arguments describe.

    Without arguments it is every GPU of this machine, or its CPU where there is
    none. Model and optimizer are then made inside `with strategy.scope():`.

    Args:
        tpu: `"local"` for the TPU of this machine, or the name or address of
            a TPU or of a slice of a pod.
        num_gpus: How many GPUs of this machine to use; 0 for its CPU.
        multi_worker: Whether the same program runs on several machines, which
            the environment variable `TF_CONFIG` of each names. Has to be the
            first thing that a program asks of TensorFlow.

    Returns:
        A `tf.distribute.Strategy`.

    Example:
        >>> import caltrain_tf as ct
        >>> strategy = ct.training.get_strategy(num_gpus=0)
        >>> strategy.num_replicas_in_sync
        1
    """
    if tpu is not None and (num_gpus is not None or multi_worker):
        raise ValueError(
            "`tpu` goes with neither `num_gpus` nor `multi_worker`. Received: "
            f"tpu={tpu!r}, num_gpus={num_gpus}, multi_worker={multi_worker}"
        )
    if multi_worker and num_gpus is not None:
        raise ValueError(
            "`multi_worker` uses every GPU that a machine shows; hide some "
            "with CUDA_VISIBLE_DEVICES. "
            f"Received: num_gpus={num_gpus}, multi_worker={multi_worker}"
        )
    if tpu is not None:
        return _tpu_strategy(tpu)
    if multi_worker:
        return _multi_worker_strategy()
    return _local_strategy(num_gpus)


def is_multi_worker(strategy):
    """Whether several processes, each with its own Python, run in step."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy):
    """Whether this process is the one that writes the files of a run."""
    if not is_multi_worker(strategy):
        return True
    resolver = strategy.cluster_resolver
    if resolver.task_type in (None, "chief"):
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == "worker" and (
        resolver.task_id == 0 and not has_chief
    )


def _tpu_strategy(tpu):
    if not isinstance(tpu, str) or not tpu:
        raise ValueError(
            f'`tpu` must be "local" or the name of a TPU. Received: tpu={tpu!r}'
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        where = "on this machine" if tpu == "local" else "of that name"
        raise ValueError(
            f'No TPU was found {where}. `tpu` must be "local" on a machine '
            "with a TPU, or the name of one that this machine reaches; without "
            f"it, GPUs or the CPU are used. Received: tpu={tpu!r}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _multi_worker_strategy():
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster")
    except (json.JSONDecodeError, AttributeError):
        cluster = None
    if not cluster:
        raise ValueError(
            "`multi_worker=True` needs the environment variable TF_CONFIG, "
            'such as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}. '
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


def _local_strategy(num_gpus):
    gpus = tf.config.list_logical_devices("GPU")
    count = len(gpus) if num_gpus is None else num_gpus
    is_count = isinstance(count, int) and not isinstance(count, bool)
    if not is_count or not 0 <= count <= len(gpus):
        raise ValueError(
            f"`num_gpus` must be an integer between 0 and {len(gpus)}, the "
            f"GPUs of this machine. Received: num_gpus={num_gpus!r}"
        )
    if count == 0:
        return tf.distribute.OneDeviceStrategy("CPU:0")
    if count == 1:
        return tf.distribute.OneDeviceStrategy(gpus[0].name)
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus[:count]])
