import pytest

from caltrain_tf.data.shards import rows_of_shard


def test_shards_in_order_make_up_the_batch():
    rows = [row for i in range(4) for row in rows_of_shard(24, (i, 4))]
    assert rows == list(range(24))


@pytest.mark.parametrize(
    ("batch_size", "shard", "name"),
    [
        (8, (2, 2), "shard"),
        (8, (-1, 2), "shard"),
        (8, (0, 0), "shard"),
        (9, (0, 2), "batch_size"),
        (0, (0, 1), "batch_size"),
        (8.0, (0, 1), "batch_size"),
    ],
)
def test_bad_shards_are_errors(batch_size, shard, name):
    with pytest.raises(ValueError, match=f"`{name}` .*Received: {name}="):
        rows_of_shard(batch_size, shard)
