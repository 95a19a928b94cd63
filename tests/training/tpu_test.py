"""What a TPU of one host would run; `remote.py` has two hosts."""

import pytest

from tests.training import fake_tpu, tiny

HOST = "/job:localhost/replica:0/task:0"


@pytest.fixture(scope="module")
def tpu():
    cores = [f"{HOST}/device:CPU:0", f"{HOST}/device:CPU:1"]
    return fake_tpu.TPU({cores[0]: cores})


def test_steps_evaluation_and_prediction_are_traced(tpu):
    fake_tpu.check_programs(tpu, tiny.dataset())


def test_checkpoints(tpu, tmp_path):
    fake_tpu.check_checkpoints(tpu, tmp_path)
