"""Conformal prediction sets, which hold the label with a given probability."""

import numpy as np
from scipy.special import softmax

from caltrain_tf import layers
from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_flag
from caltrain_tf.checks import check_number
from caltrain_tf.checks import warn
from caltrain_tf.posthoc import data
from caltrain_tf.posthoc.base import PostHoc

METHODS = ("thr", "aps", "raps")


class ConformalSets(PostHoc):
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
    given to `fit`. The probability holds for new examples from the same
    distribution, whatever the network; a set may be empty. If n is too small
    for such a score, `fit` warns and sets hold all classes. With weights, a new
    example is taken to have the (weighted) mean weight.

    Sets depend on how probabilities are calibrated. To calibrate first, fit to
    `calibrator.transform(logits)` and append to `calibrator.append_to(model)`,
    with a calibrator that was fitted to other examples.

    Args:
        method: One of the above.
        alpha: The share of examples whose set may miss the label, in (0, 1).
        k_reg: Number of classes without a penalty, for `"raps"`.
        lam: The penalty of each further class, at least 0, for `"raps"`.
        randomized: Whether to randomize the scores of `"aps"` and `"raps"`.
            Otherwise u is 0: sets are deterministic, and larger where a
            network is so confident that many scores are equal to 1.
        seed: Seed of the random numbers. `predict_set` uses the same numbers in
            each call; the layer draws new ones.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

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
        super().__init__(
            from_probs=from_probs,
            multi_label=multi_label,
            ignore_class=ignore_class,
        )
        self.method = check_choice("method", method, METHODS)
        self.alpha = check_number("alpha", alpha, low=0, high=1)
        self.k_reg = check_count("k_reg", k_reg, low=0)
        self.lam = check_number("lam", lam, low=0, closed=True)
        self.randomized = check_flag("randomized", randomized)
        self.seed = check_count("seed", seed, low=0)

    def predict_set(self, logits):
        """Returns which classes are in the sets.

        Args:
            logits: Logits, or probabilities with `from_probs=True`, of any
                shape that `fit` takes.

        Returns:
            A boolean array `(..., K)`; `(N, 2)` or `(..., 2)` for binary
            problems, and `(..., L, 2)` with `multi_label=True`.
        """
        self._check_fitted()
        values, shape = data.flatten(logits, self.multi_label)
        sets = np.empty((len(values), max(values.shape[1], 2)), bool)
        chance = self._chance(len(values), 1)

        def block(rows, i, j):
            scores, probs = self._scores(rows)
            return scores - chance[i:j, None] * probs <= self.threshold_

        self._fill(sets, values, block)
        is_binary = self.multi_label or len(shape) == 1
        return sets.reshape(*(shape if is_binary else shape[:-1]), -1)

    def append_to(self, model):
        """Returns the model with prediction sets as outputs; it can be saved.

        Args:
            model: A functional or built sequential Keras model with one output,
                which `predict_set` takes. It is not changed; its layers are
                shared.

        Returns:
            A functional `keras.Model` that returns booleans.
        """
        self._check_fitted()
        return self._extend(model, "sets")

    def _fit(self, rows):
        def block(logits, labels, weights):
            scores, probs = (
                np.take_along_axis(each, labels[:, None], axis=1)[:, 0]
                for each in self._scores(logits)
            )
            if weights is None:
                weights = np.ones(len(labels))
            return scores, probs, weights

        parts = zip(*rows.map(block, check=True), strict=True)
        scores, probs, weights = map(np.concatenate, parts)
        scores = scores - self._chance(len(scores), 0) * probs
        self.threshold_ = conformal_quantile(scores, weights, self.alpha)
        if self.threshold_ == np.inf:
            # Larger than all scores, and finite, as JSON requires.
            self.threshold_ = 2.0 + self.lam * rows.num_classes
            warn(
                f"{len(scores)} examples are too few for alpha={self.alpha}: "
                "sets hold all classes. At least 1 / alpha - 1 are needed."
            )

    def _scores(self, logits):
        """Scores with u = 0, and the factors of u, both `(n, K)`."""
        probs = softmax(logits.astype(np.float64), axis=1)
        if self.method == "thr":
            return 1 - probs, np.zeros_like(probs)
        order = np.argsort(-probs, axis=1, kind="stable")
        ordered = np.take_along_axis(probs, order, axis=1)
        # A sum that rounding takes beyond 1 would leave a class out.
        cumulated = np.minimum(np.cumsum(ordered, axis=1), 1.0)
        if self.method == "raps":
            rank = np.arange(1, probs.shape[1] + 1)
            cumulated += self.lam * np.maximum(rank - self.k_reg, 0)
        scores = np.empty_like(probs)
        np.put_along_axis(scores, order, cumulated, axis=1)
        return scores, probs

    def _chance(self, count, stream):
        """The numbers u `(count,)`; those of two streams are independent."""
        if not self.randomized:
            return np.zeros(count)
        return np.random.default_rng([self.seed, stream]).random(count)

    def _expected_classes(self):
        return self.num_classes_

    def _layer(self, **options):
        return layers.ConformalSet(
            self.threshold_,
            self.method,
            self.k_reg,
            self.lam,
            self.randomized,
            self.seed,
            name="conformal_set",
            **options,
        )

    def _check_fitted_values(self):
        check_number("threshold_", self.threshold_, low=0, closed=True)


def conformal_quantile(scores, weights, alpha):
    """The smallest score that covers a new example with probability 1 - alpha.

    Args:
        scores: `(n,)`.
        weights: `(n,)`, of which only the ratios matter.
        alpha: Share of the weight that may be above the score.

    Returns:
        With equal weights the ceil((n + 1) (1 - alpha))-th smallest score, or
        infinity if there is none.

    Example:
        >>> conformal_quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.5)
        2.0
        >>> conformal_quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.2)
        inf
    """
    order = np.argsort(scores)
    cumulated = np.cumsum(weights[order])
    of_new = weights @ weights / cumulated[-1]
    # (n + 1) (1 - alpha) may be an integer that rounding has missed.
    needed = (1 - 1e-12) * (1 - alpha) * (cumulated[-1] + of_new)
    place = np.searchsorted(cumulated, needed)
    return float(scores[order[place]]) if place < len(scores) else np.inf
