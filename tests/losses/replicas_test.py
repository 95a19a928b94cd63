"""R replicas equal one global batch, and ignored examples are not there."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import caltrain_tf as ct
from tests.losses.cases import (
    OF_LOGITS,
    SECONDARY,
    VARIANTS,
    batch,
    get,
    value_and_gradient,
)


def choices(**options):
    return st.fixed_dictionaries(
        {name: st.sampled_from(values) for name, values in options.items()}
    )


SOFT_BINS = {
    "num_bins": [1, 2, 15],
    "temperature": [0.002, 0.01, 0.1],
    "norm": [1, 1.5, 2, 3],
    "binning": ["bin", "label"],
    "root": [True, False],
}
OPTIONS = {
    "sb_ece": choices(**SOFT_BINS, lower=[0.0, 0.2, "chance"]),
    "sb_marginal_ece": choices(**SOFT_BINS),
    "s_avuc": choices(threshold=[0.2, 0.5, 0.8], temperature=[0.05, 0.5]),
    "avuc": choices(threshold=[None, 0.3, 1.0], stop_gradient=[True, False]),
    "mmce": choices(
        width=[0.05, 0.4], weighted=[True, False], root=[True, False]
    ),
    "mbls": choices(margin=[0.0, 2.0]),
    "acls": choices(
        margin=[0.0, 2.0], positive=[0.0, 1.0], negative=[0.0, 0.3]
    ),
}


def check_two_replicas(strategy, name, options, count=5, seed=0, weights=None):
    """Compares values and gradients of `count` and 15 - `count` examples."""
    labels, logits = batch(15, 3, seed=seed)
    weights = np.ones(15) if weights is None else weights
    arrays = labels, logits, np.array(weights, "float32")

    def loss(labels, logits, weights):
        value = SECONDARY[name][0](
            labels,
            logits,
            from_logits=True,
            sample_weight=weights,
            cross_replica=True,
            **options,
        )
        return value / ct.replicas.replica_count()

    expected, reference = value_and_gradient(loss, *arrays)

    def share(array):
        parts = (array[:count], array[count:])
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    step = tf.function(
        lambda *shares: value_and_gradient(loss, *shares), autograph=False
    )
    values, gradients = map(
        strategy.experimental_local_results,
        strategy.run(step, args=tuple(map(share, arrays))),
    )
    # Sums in another order: 1e-6 was seen; what misses the other replica's part
    # is wrong by 1e-2 and more.
    for value in values:
        np.testing.assert_allclose(2 * value, expected, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(
        np.concatenate(gradients),
        reference,
        atol=5e-5 * np.abs(reference).max() + 1e-9,
    )


@settings(
    max_examples=16,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_two_replicas_equal_one_batch(two_replicas, data):
    name = data.draw(st.sampled_from(sorted(SECONDARY)))
    options = data.draw(OPTIONS.get(name, st.just({})))
    # One replica may have no example at all.
    count = data.draw(st.sampled_from([0, 5, 8]))
    weights = data.draw(
        st.lists(st.sampled_from([0.5, 1, 3]), min_size=15, max_size=15)
    )
    seed = data.draw(st.integers(0, 99))
    check_two_replicas(two_replicas, name, options, count, seed, weights)


@pytest.mark.parametrize("name", SECONDARY)
def test_each_loss_over_two_replicas(name, two_replicas):
    check_two_replicas(two_replicas, name, {})


@pytest.mark.parametrize("name", ["sb_ece", "sb_marginal_ece"])
def test_cubed_label_bins_over_two_replicas(name, two_replicas):
    options = {"binning": "label", "norm": 3}
    check_two_replicas(two_replicas, name, options)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    variant=st.sampled_from(VARIANTS),
    ignored=st.sets(st.integers(0, 11), min_size=1, max_size=9),
)
def test_ignored_examples_contribute_nothing(variant, ignored):
    name, options = variant
    labels, logits = batch(12, 4)
    kept = np.array([i not in ignored for i in range(12)])
    if name in OF_LOGITS:
        options = {"margin": 1.0, **options}
    loss = get(name, from_logits=True, ignore_class=255, **options)
    spoilt = np.where(kept, labels, 255)
    garbage = np.where(kept[:, None], logits, np.inf).astype("float32")
    value, gradient = value_and_gradient(loss, spoilt, garbage)
    expected, reference = value_and_gradient(loss, labels[kept], logits[kept])
    # Sums of as many terms or fewer: 1e-6.
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-7)
    np.testing.assert_array_equal(gradient.numpy()[~kept], 0.0)
    np.testing.assert_allclose(
        gradient.numpy()[kept],
        reference,
        atol=5e-5 * np.abs(reference).max() + 1e-9,
    )
