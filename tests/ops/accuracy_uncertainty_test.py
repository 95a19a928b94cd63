import numpy as np

from caltrain_tf.ops.accuracy_uncertainty import accuracy_versus_uncertainty


def ratio(correct, weight=(1.0, 1.0)):
    certain = np.array([0.5, 0.25], "float32")
    uncertain = np.array([0.125, 0.5], "float32")
    return accuracy_versus_uncertainty(
        np.array(correct, "float32"),
        certainty=(certain, certain),
        uncertainty=(uncertain, uncertain),
        weight=np.array(weight, "float32"),
        cross_replica=False,
    )


def test_counts_agreement_and_disagreement():
    # Right and certain 0.5, wrong and uncertain 0.5, against the rest.
    np.testing.assert_allclose(
        ratio([1, 0]), np.log(1 + (0.125 + 0.25) / (0.5 + 0.5)), rtol=1e-6
    )
    np.testing.assert_allclose(
        ratio([1, 0], weight=(2, 1)), np.log(1 + 0.5 / 1.5), rtol=1e-6
    )


def test_no_weight_is_no_loss():
    assert ratio([1, 0], weight=(0, 0)) == 0
