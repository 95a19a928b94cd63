import math

import numpy as np

from caltrain_tf.posthoc import tempered
from caltrain_tf.posthoc.panel import Panel
from caltrain_tf.posthoc.rows import as_rows
from tests.posthoc.data import calibrated
from tests.posthoc.data import mean_nll
from tests.posthoc.data import softmax


def test_interpolates_confidences():
    logits, labels = calibrated(200, 20, scale=4.0)
    rows = as_rows(logits, labels)
    for width, tolerance in ((math.log(1.25), 1e-5), (0.02, 1e-10)):
        ends = [-0.3, -0.3 + width]
        panel = Panel(tempered.evaluate_nodes(rows, np.exp(ends)), 0, *ends)
        for position in np.linspace(*ends, 7):
            expected = softmax(math.exp(position) * logits)
            np.testing.assert_allclose(
                panel.confidence(position),
                expected.max(axis=1),
                atol=tolerance,
            )
            gap = expected.max(axis=1) - (expected.argmax(axis=1) == labels)
            np.testing.assert_allclose(
                panel.gap(position), gap.mean(), atol=tolerance
            )


def test_likelihood_and_its_derivatives():
    logits, labels = calibrated(100, 5)
    rows = as_rows(logits, labels)
    step = 1e-4

    def value(inverse):
        return 100 * mean_nll(inverse * logits, labels)

    totals = tempered.likelihood(rows, 0.7)
    slope = (value(0.7 + step) - value(0.7 - step)) / (2 * step)
    bend = value(0.7 + step) - 2 * value(0.7) + value(0.7 - step)
    np.testing.assert_allclose(
        totals, (100, value(0.7), slope, bend / step**2), rtol=1e-5
    )
