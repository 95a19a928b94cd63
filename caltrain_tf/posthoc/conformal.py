"""Conformal prediction sets, which hold the label with a given probability."""

import zlib

import numpy as np
from scipy.special import softmax

from caltrain_tf import checks, inputs, layers
from caltrain_tf.posthoc import base

METHODS = ("thr", "aps", "raps")


class ConformalSets(base.PostHoc):
    """Sets of classes that hold the label with probability 1 - `alpha`.

    Each class of an example has a score, which is smaller the better the class
    fits. With the probability p of the class, its rank (1 for the most probable
    class) and a number u for each example, which is uniform in [0, 1], or 0 if
    not `randomized`, the score is

    - `"thr"`: 1 - p. This gives the smallest sets.
    - `"aps"`: the sum of the probabilities of all classes up to its rank, minus
      u p. This gives larger sets for difficult examples.
    - `"raps"`: the same plus lam max(0, rank - k_reg), which keeps unlikely
      classes out.

    A set holds all classes whose score is at most `threshold_`, the
    ceil((n + 1) (1 - alpha))-th smallest score of the labels of the n examples
    given to `fit`; it may be empty. If n is too small for such a score, `fit`
    warns and sets hold all classes. With weights, a new example is taken to
    have the (weighted) mean weight.

    To calibrate first, fit to `calibrator.transform(logits)` and append to
    `calibrator.append_to(model)`, with a calibrator that was fitted to other
    examples.

    Args:
        method: One of the above.
        alpha: The share of examples whose set may miss the label, in (0, 1).
        k_reg: Number of classes without a penalty, for `"raps"`.
        lam: The penalty of each further class, at least 0, for `"raps"`.
        randomized: Whether to randomize the scores of `"aps"` and `"raps"`.
            Otherwise sets are deterministic, and larger for confident networks.
        seed: Seed of the random numbers. Those of a call of `predict_set`
            depend only on it and on the predictions; the layer draws new ones
            in each call.
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        threshold_: The largest score of a class in a set.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 5, size=4000)
        >>> logits = rng.normal(size=(4000, 5)) + 2 * np.eye(5)[labels]
        >>> conformal = ct.posthoc.ConformalSets("aps", alpha=0.1)
        >>> conformal = conformal.fit(logits[:2000], labels[:2000])
        >>> sets = conformal.predict_set(logits[2000:])
        >>> sets.shape, sets.dtype
        ((2000, 5), dtype('bool'))
        >>> round(ct.metrics.coverage(sets, labels[2000:]), 2)
        0.9

    Reference:
        Sadinle et al., "Least Ambiguous Set-Valued Classifiers with Bounded
        Error Levels", 2019; Romano et al., "Classification with Valid and
        Adaptive Coverage", 2020; Angelopoulos et al., "Uncertainty Sets for
        Image Classifiers using Conformal Prediction", 2021.
    """

    fitted_names = ("threshold_",)

    def __init__(
        self,
        method="thr",
        alpha=0.1,
        *,
        k_reg=5,
        lam=0.01,
        randomized=True,
        seed=0,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_probs, multi_label, ignore_class)
        self.method = checks.choice("method", method, METHODS)
        self.alpha = checks.number("alpha", alpha, low=0, high=1)
        self.k_reg = checks.count("k_reg", k_reg, low=0)
        self.lam = checks.number("lam", lam, low=0, closed=True)
        self.randomized = checks.flag("randomized", randomized)
        self.seed = checks.count("seed", seed, low=0)

    def predict_set(self, logits):
        """Returns which classes are in the sets, for predictions as in `fit`.

        Returns:
            A boolean array `(..., K)`; `(N, 2)` or `(..., 2)` for binary
            problems, and `(..., L, 2)` with `multi_label=True`.
        """
        examples = self._read_new(logits)
        bound, lam = layers.ConformalSet.bounds(self.threshold_, self.lam)
        predictions, _ = examples.whole()
        logits = base.to_logits(predictions, self.from_probs)
        fit, probs = self._fit_of_classes(logits, lam)
        if self._is_randomized():
            # Calls with one example each must have different numbers. The sum
            # makes 0 of -0.
            content = zlib.crc32(np.ascontiguousarray(predictions + 0))
            generator = np.random.default_rng([self.seed, 1, content])
            fit += generator.random((len(fit), 1)) * probs
        return (fit >= bound).reshape(*examples.shape, -1)

    def append_to(self, model):
        """Returns the model with sets as outputs, as `Calibrator` does."""
        return self._extend(model, "sets")

    def _fit(self, logits, labels, weights):
        fit, probs = (
            inputs.at_class(each, labels)
            for each in self._fit_of_classes(logits, self.lam)
        )
        if self._is_randomized():
            generator = np.random.default_rng([self.seed, 0])
            fit += generator.random(len(fit)) * probs
        self.threshold_ = 1.0 + conformal_quantile(-fit, weights, self.alpha)
        if self.threshold_ == np.inf:
            # Larger than all scores, and finite, as JSON requires.
            self.threshold_ = 2.0 + self.lam * logits.shape[1]
            checks.warn(
                f"{len(fit)} examples are too few for alpha={self.alpha}: "
                "sets hold all classes. At least 1 / alpha - 1 are needed."
            )

    def _is_randomized(self):
        return self.randomized and self.method != "thr"

    def _fit_of_classes(self, logits, lam):
        """1 - score with u = 0, and the factor of u, `(n, K)` both."""
        # Scores of confident networks are close to 1; 1 - score keeps digits.
        probs = softmax(logits.astype(np.float64), axis=1)
        if self.method == "thr":
            return probs, np.zeros_like(probs)
        order = np.argsort(-probs, axis=1, kind="stable")
        ordered = np.take_along_axis(probs, order, axis=1)
        # The probability of all less probable classes, the smallest first.
        smaller = np.zeros_like(probs)
        smaller[:, :-1] = np.cumsum(ordered[:, :0:-1], axis=1)[:, ::-1]
        if self.method == "raps":
            rank = np.arange(1, probs.shape[1] + 1)
            smaller -= lam * np.maximum(rank - self.k_reg, 0)
        fit = np.empty_like(probs)
        np.put_along_axis(fit, order, smaller, axis=1)
        return fit, probs

    def _layer(self, **options):
        for name in ("method", "k_reg", "lam", "randomized", "seed"):
            options[name] = getattr(self, name)
        return layers.ConformalSet(
            self.threshold_, name="conformal_set", **options
        )


def conformal_quantile(scores, weights, alpha):
    """The score that covers a new example with probability 1 - alpha."""
    order = np.argsort(scores)
    weights = weights[order] / weights.max()
    cumulated = np.cumsum(weights)
    of_new = weights @ weights / cumulated[-1]
    # (n + 1) (1 - alpha) may be an integer that rounding has missed.
    needed = (1 - 1e-12) * (1 - alpha) * (cumulated[-1] + of_new)
    place = np.searchsorted(cumulated, needed)
    return float(scores[order[place]]) if place < len(scores) else np.inf
