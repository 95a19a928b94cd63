"""Accuracy versus uncertainty calibration, with a hard and a soft threshold."""

import math

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import base

# The smallest denominator, as in the authors' released code.
SMALLEST_AGREEMENT = 1e-5
# How far the normalised entropy stays from 0 and 1, where its log-odds are
# infinite. In float32 a uniform prediction lands on 1 or beyond.
_MARGIN = 1e-6


def avuc(
    y_true,
    y_pred,
    from_logits=False,
    *,
    threshold=None,
    stop_gradient=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Rewards certain accurate and uncertain inaccurate predictions.

    With the confidence c and the entropy h of an example, which is certain if h
    is below the threshold,

        log(1 + (n_AU + n_IC) / (n_AC + n_IU)),
        n_AU = sum over accurate and uncertain of c tanh h,
        n_AC = sum over accurate and certain of c (1 - tanh h),
        n_IC = sum over inaccurate and certain of (1 - c) (1 - tanh h),
        n_IU = sum over inaccurate and uncertain of (1 - c) tanh h.

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.
        threshold: Entropy in nats, above 0; half of log K by default.
        stop_gradient: Whether to stop the gradient through c and 1 - c, since
            it rewards confidence in wrong predictions (the paper's AvUC-GS).

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.avuc([0, 1, 1], probs)), 4)
        0.3723

    Reference:
        Krishnan and Tickoo, "Improving model calibration with accuracy versus
        uncertainty optimization", 2020.
    """
    threshold = _check_entropy(threshold)
    stop_gradient = checks.flag("stop_gradient", stop_gradient)
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    if threshold is None:
        threshold = 0.5 * math.log(batch.num_classes)
    entropy = batch.entropy()
    confidence = batch.confidence()
    if stop_gradient:
        confidence = ops.stop_gradient(confidence)
    is_certain = entropy < threshold
    certainty = ops.where(is_certain, 1.0 - ops.tanh(entropy), 0.0)
    uncertainty = ops.where(is_certain, 0.0, ops.tanh(entropy))
    factor = ops.where(batch.correctness() == 1, confidence, 1.0 - confidence)
    return _disagreement(factor * certainty, factor * uncertainty, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class AvUC(base.Loss):
    """`avuc` as a Keras loss; see there for the arguments."""

    function = staticmethod(avuc)

    def __init__(
        self,
        threshold=None,
        stop_gradient=False,
        from_logits=False,
        name="avuc",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.threshold = _check_entropy(threshold)
        self.stop_gradient = checks.flag("stop_gradient", stop_gradient)


def soft_avuc(
    y_true,
    y_pred,
    from_logits=False,
    *,
    threshold=0.5,
    temperature=0.1,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Softly rewards certain accurate and uncertain inaccurate predictions.

    With the entropy h in nats, h* = h / log K and the soft uncertainty
    t = logistic(log[h* (1 - kappa) / ((1 - h*) kappa)] / temperature),

        log(1 + (n_AU + n_IC) / (n_AC + n_IU)),
        n_AU = sum over accurate of t tanh h,
        n_AC = sum over accurate of (1 - t) (1 - tanh h),

    and likewise n_IU and n_IC over the inaccurate examples (equation 15).

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.
        threshold: kappa in (0, 1), a share of the largest entropy.
        temperature: Softness; towards 0 the threshold becomes hard.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.soft_avuc([0, 1, 1], probs)), 4)
        0.4765

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, section 4.2.
    """
    threshold = checks.number("threshold", threshold, low=0, high=1)
    temperature = checks.number("temperature", temperature, low=0)
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    entropy = batch.entropy()
    share = entropy / math.log(batch.num_classes)
    share = ops.clip(share, _MARGIN, 1.0 - _MARGIN)
    log_odds = ops.log(share) - ops.log1p(-share)
    log_odds = log_odds - (math.log(threshold) - math.log1p(-threshold))
    soft_uncertainty = ops.sigmoid(log_odds / temperature)
    return _disagreement(
        (1.0 - soft_uncertainty) * (1.0 - ops.tanh(entropy)),
        soft_uncertainty * ops.tanh(entropy),
        batch,
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class SoftAvUC(base.Loss):
    """`soft_avuc` as a Keras loss; see there for the arguments."""

    function = staticmethod(soft_avuc)

    def __init__(
        self,
        threshold=0.5,
        temperature=0.1,
        from_logits=False,
        name="s_avuc",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.threshold = checks.number("threshold", threshold, low=0, high=1)
        self.temperature = checks.number("temperature", temperature, low=0)


def _check_entropy(threshold):
    # The largest entropy, log K, is not known before the first prediction.
    if threshold is None:
        return None
    return checks.number("threshold", threshold, low=0)


def _disagreement(certain, uncertain, batch):
    """log(1 + (n_AU + n_IC) / (n_AC + n_IU)) of each example's terms `(n,)`."""
    is_correct = batch.correctness() == 1
    agreement = ops.where(is_correct, certain, uncertain)
    disagreement = ops.where(is_correct, uncertain, certain)
    terms = batch.weight * ops.stack([agreement, disagreement])
    sums = batch.sum_over_replicas(ops.sum(terms, axis=1))
    smallest = max(SMALLEST_AGREEMENT, batch.smallest)
    return ops.log1p(sums[1] / ops.maximum(sums[0], smallest))
