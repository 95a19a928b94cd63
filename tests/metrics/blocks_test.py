import numpy as np
import pytest

from caltrain_tf.metrics import blocks


@pytest.mark.parametrize("num_rows", [1, 7, 8, 9, 1000])
@pytest.mark.parametrize("threaded", [False, True])
def test_covers_every_row_once_and_in_order(num_rows, threaded, monkeypatch):
    monkeypatch.setattr(
        blocks, "SMALLEST_THREADED_BYTES", 0 if threaded else 1e9
    )
    monkeypatch.setattr(blocks, "available_cores", lambda: 4)
    ranges = blocks.map_blocks(
        lambda start, stop: list(range(start, stop)), num_rows, 1, block_bytes=8
    )
    assert np.concatenate(ranges).tolist() == list(range(num_rows))


def test_a_row_larger_than_a_block_is_a_block():
    assert blocks.map_blocks(
        lambda start, stop: stop - start, 3, 100, block_bytes=8
    ) == [1, 1, 1]


def test_raises_the_error_of_the_first_block(monkeypatch):
    monkeypatch.setattr(blocks, "SMALLEST_THREADED_BYTES", 0)
    monkeypatch.setattr(blocks, "available_cores", lambda: 4)

    def fail_late(start, stop):
        if start >= 500:
            raise ValueError(f"row {start}")

    for _ in range(20):
        with pytest.raises(ValueError, match="^row 500$"):
            blocks.map_blocks(fail_late, 1000, 1, block_bytes=1)
