import numpy as np

from caltrain_tf.metrics import rows
from tests.metrics.cases import sample
from tests.metrics.cases import softmax


def test_softmax_of_shifted_logits():
    logits, _ = sample(20, 5)
    largest = logits.max(axis=1, keepdims=True)
    probs = rows.softmax(rows.shift_logits(logits, largest))
    np.testing.assert_allclose(probs, softmax(logits), rtol=1e-5)


def test_shifting_does_not_overflow():
    logits = np.float32([[3e38, -3e38]])
    shifted = rows.shift_logits(logits, logits.max(axis=1, keepdims=True))
    assert shifted.tolist() == [[0.0, rows.LOWEST_LOGIT]]
    assert rows.softmax(shifted).tolist() == [[1.0, 0.0]]
