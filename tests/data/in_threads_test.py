import threading
import time

import pytest

from caltrain_tf.data.in_threads import in_threads


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_results_are_in_order_and_calls_at_once(num_threads):
    lock, running, most = threading.Lock(), [], []

    def square(number):
        with lock:
            running.append(number)
            most.append(len(running))
        # The first takes the longest.
        time.sleep(0.2 if number == 0 else 0.02)
        with lock:
            running.remove(number)
        return number**2

    results = in_threads(square, range(9), num_threads, ahead=1)
    assert list(results) == [number**2 for number in range(9)]
    assert max(most) == num_threads


def test_only_a_few_are_taken_ahead():
    taken = []
    results = in_threads(
        lambda number: number, map(taken.append, range(100)), 2, ahead=3
    )
    assert not taken
    next(results)
    assert len(taken) == 5
    next(results)
    assert len(taken) == 6


def test_what_was_under_way_comes_before_the_items_error():
    def items():
        yield from range(4)
        raise KeyboardInterrupt

    results = in_threads(lambda number: -number, items(), 2, ahead=1)
    assert [next(results) for _ in range(4)] == [0, -1, -2, -3]
    with pytest.raises(KeyboardInterrupt):
        next(results)


def test_an_error_of_the_function_is_the_callers():
    def fails(number):
        if number == 2:
            raise ValueError("no two")
        return number

    results = in_threads(fails, range(9), 2, ahead=1)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="no two"):
        next(results)


def test_nothing_runs_after_it_is_closed():
    done = []

    def slow(number):
        time.sleep(0.05)
        done.append(number)

    results = in_threads(slow, range(100), 1, ahead=5)
    next(results)
    results.close()
    count = len(done)
    time.sleep(0.2)
    assert len(done) == count < 5
