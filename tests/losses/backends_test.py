import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.losses import naive
from tests.losses.backend_values import all_values, fit_history
from tests.losses.cases import batch

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_same_numbers_on_every_backend(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    process = subprocess.run(
        [sys.executable, "-m", "tests.losses.backend_values"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    rows, history, hessian = json.loads(process.stdout.splitlines()[-1])
    expected = all_values()
    assert len(rows) == len(expected) > 20
    for (name, options, value, gradient), reference in zip(
        rows, expected, strict=True
    ):
        case = f"{name} {options}"
        np.testing.assert_allclose(value, reference[2], rtol=2e-5, err_msg=case)
        # 4e-5 of the largest was seen, without XLA's optimisations; a wrong
        # gradient is wrong by 1e-2 and more.
        np.testing.assert_allclose(
            gradient,
            reference[3],
            atol=5e-4 * np.abs(reference[3]).max(),
            err_msg=case,
        )
    reference = fit_history()
    assert history.keys() == reference.keys()
    for name, values in reference.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-4)
    if hessian is not None:
        check_hessian(hessian)


def check_hessian(hessian):
    """Against second differences of the formula in float64."""
    labels, logits = batch(5, 3, seed=7)

    def value(x):
        changed = np.concatenate([x[:, None], logits[:, 1:]], axis=1)
        return naive.mmce(labels, naive.softmax(changed))

    expected = naive.finite_difference_rows(value, logits[:, 0])
    np.testing.assert_allclose(
        hessian, expected, atol=1e-3 * np.abs(expected).max()
    )
