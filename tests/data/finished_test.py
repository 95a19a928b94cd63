import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.data.finished import finished

OFF = tf.data.experimental.AutoShardPolicy.OFF


def own_images():
    images = np.zeros((4, 2, 2, 3), np.uint8)
    return ct.data.ArrayData("mine", {"test": (images, range(4))})


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: ct.data.get("digits").train_batches(32),
        lambda: ct.data.get("digits").eval_batches("test", 32),
        lambda: own_images().eval_batches("test", 4),
        # As `Trainer` goes on with it.
        lambda: own_images().eval_batches("test", 4).prefetch(2),
    ],
)
def test_every_pipeline_is_in_order_and_without_the_tuning_thread(dataset):
    options = dataset().options()
    assert options.deterministic
    assert options.autotune.enabled is False
    assert options.experimental_distribute.auto_shard_policy == OFF


def test_every_batch_is_finished():
    dataset = tf.data.Dataset.from_tensor_slices(([1, 2, 3], [4, 5, 6]))
    sums = finished(dataset, lambda x, y: x + y, ahead=1)
    np.testing.assert_array_equal(list(sums.as_numpy_iterator()), [5, 7, 9])
