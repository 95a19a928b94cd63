"""Dirichlet calibration with ODIR."""

import numpy as np

from caltrain_tf.checks import check_number
from caltrain_tf.posthoc import likelihood
from caltrain_tf.posthoc import penalized
from caltrain_tf.posthoc.affine import CV_TOLERANCE
from caltrain_tf.posthoc.affine import STRENGTHS
from caltrain_tf.posthoc.affine import TOLERANCE
from caltrain_tf.posthoc.affine import AffineCalibrator


class DirichletCalibration(AffineCalibrator):
    """An affine map of the log-probabilities, regularised by ODIR.

    It minimises

        mean NLL + off_diagonal mean(off-diagonal scale^2)
                 + intercept mean(bias^2)

    with outputs `log_softmax(logits) @ scale.T + bias`. What is not given of
    the two penalties is chosen by cross-validation: first both together, then
    the intercept's alone.

    Args:
        off_diagonal: ODIR's lambda, at least 0, or None.
        intercept: ODIR's mu, at least 0, or None.
        cv: Number of folds. Where examples x classes^2 exceed 1e7, only the
            first of them is held out.
        max_iterations: Of L-BFGS.

    Attributes:
        scale_: `(K, K)`.
        bias_: `(K,)`.
        off_diagonal_: Lambda of the fit.
        intercept_: Mu of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> scaler = ct.posthoc.DirichletCalibration(
        ...     off_diagonal=0.1, intercept=0.1
        ... ).fit(3 * logits, labels)
        >>> scaler.scale_.shape
        (3, 3)

    Reference:
        Kull et al., "Beyond temperature scaling: Obtaining well-calibrated
        multiclass probabilities with Dirichlet calibration", 2019.
    """

    kind = "matrix"
    log_probabilities = True
    option_names = ("off_diagonal", "intercept", "cv", "max_iterations")
    fitted_names = ("scale_", "bias_", "off_diagonal_", "intercept_")

    def __init__(
        self, *, off_diagonal=None, intercept=None, cv=5, max_iterations=200
    ):
        """See the class."""
        super().__init__(cv=cv, max_iterations=max_iterations)
        if off_diagonal is not None:
            check_number("off_diagonal", off_diagonal, low=0, closed=True)
        if intercept is not None:
            check_number("intercept", intercept, low=0, closed=True)
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _fit(self, rows):
        view = likelihood.overview(rows)
        inverse = likelihood.fit(rows, view)
        rows = rows.mapped(self._inputs)
        start = inverse * self._identity(rows.num_classes)

        def solve(
            rows, penalties, origin, max_iterations, tolerance=CV_TOLERANCE
        ):
            return penalized.fit(
                rows,
                origin,
                np.zeros_like(start),
                odir_strength(rows.num_classes, *penalties),
                max_iterations=max_iterations,
                tolerance=tolerance,
            )

        def choose(path):
            return self._choose(rows, view.count, path, solve, start)

        penalties = self._choose_both(choose, rows.num_classes)
        self._keep(
            solve(rows, penalties, start, self.max_iterations, TOLERANCE)
        )
        self.off_diagonal_, self.intercept_ = map(float, penalties)

    def _choose_both(self, choose, num_classes):
        """The two penalties, as given or by cross-validation."""
        offs = num_classes * (num_classes - 1) * STRENGTHS
        intercepts = num_classes * STRENGTHS
        if self.off_diagonal is not None:
            offs = np.full_like(offs, self.off_diagonal)
        if self.intercept is not None:
            intercepts = np.full_like(intercepts, self.intercept)
        if self.off_diagonal is not None and self.intercept is not None:
            return offs[0], intercepts[0]
        best, value = choose(list(zip(offs, intercepts, strict=True)))
        if self.off_diagonal is None and self.intercept is None:
            other, other_value = choose([(best[0], mu) for mu in intercepts])
            if other_value < value:
                best = other
        return best


def odir_strength(num_classes, off_diagonal, intercept):
    """The penalty's strength for each parameter, `(K, K + 1)`."""
    each = off_diagonal / (num_classes * (num_classes - 1))
    strength = np.full((num_classes, num_classes + 1), each)
    np.fill_diagonal(strength, 0.0)
    strength[:, -1] = intercept / num_classes
    return strength
