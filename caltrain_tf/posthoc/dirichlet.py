"""Dirichlet calibration with ODIR."""

import numpy as np

from caltrain_tf import checks
from caltrain_tf.posthoc import affine
from caltrain_tf.posthoc.temperature import most_likely, survey


class DirichletCalibration(affine.AffineCalibrator):
    """An affine map of the log-probabilities, regularised by ODIR.

    It minimises

        mean NLL + off_diagonal mean(off-diagonal scale^2)
                 + intercept mean(bias^2)

    with outputs `log_softmax(logits) @ scale.T + bias`. A penalty that is not
    given is chosen by cross-validation; if neither is, first both together,
    then that of the intercept alone.

    Args:
        off_diagonal: ODIR's lambda, at least 0, or None.
        intercept: ODIR's mu, at least 0, or None.
        cv: Number of cross-validation folds, 5 by default. For large data, only
            the first folds are held out.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

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
    fitted_names = ("scale_", "bias_", "off_diagonal_", "intercept_")

    def __init__(
        self,
        *,
        off_diagonal=None,
        intercept=None,
        cv=None,
        max_iterations=1000,
        from_probs=False,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(
            cv=cv,
            max_iterations=max_iterations,
            from_probs=from_probs,
            multi_label=multi_label,
            ignore_class=ignore_class,
        )
        if off_diagonal is not None:
            off_diagonal = checks.number(
                "off_diagonal", off_diagonal, low=0, closed=True
            )
        if intercept is not None:
            intercept = checks.number(
                "intercept", intercept, low=0, closed=True
            )
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _fit_parameters(self, rows):
        view = survey(rows)
        inverse = most_likely(rows, view)
        start = inverse * self._identity(rows.num_classes)
        centre = np.zeros_like(start)

        rows = rows.changed(
            lambda logits: np.asfortranarray(self._inputs(logits))
        )
        validation = None
        if None in (self.off_diagonal, self.intercept):
            validation = affine.CrossValidation(
                rows, view.count, self.cv, start, centre
            )

        def choose(path):
            strengths = [odir_strength(rows.num_classes, *p) for p in path]
            best, value, parameters = validation.choose(strengths)
            return path[best], value, parameters

        penalties, start = self._choose_both(choose, rows.num_classes, start)
        strength = odir_strength(rows.num_classes, *penalties)
        self._fit_all(rows, start, centre, strength)
        self.off_diagonal_, self.intercept_ = map(float, penalties)

    def _choose_both(self, choose, num_classes, start):
        """The two penalties, given or cross-validated, and a start."""
        offs = num_classes * (num_classes - 1) * affine.STRENGTHS
        intercepts = num_classes * affine.STRENGTHS
        if self.off_diagonal is not None:
            offs = np.full_like(offs, self.off_diagonal)
        if self.intercept is not None:
            intercepts = np.full_like(intercepts, self.intercept)
        if self.off_diagonal is not None and self.intercept is not None:
            return (offs[0], intercepts[0]), start
        best, value, start = choose(list(zip(offs, intercepts, strict=True)))
        if self.off_diagonal is None and self.intercept is None:
            other, other_value, other_start = choose(
                [(best[0], mu) for mu in intercepts]
            )
            if other_value < value:
                best, start = other, other_start
        return best, start

    def _check_fitted_values(self):
        super()._check_fitted_values()
        for name in ("off_diagonal_", "intercept_"):
            checks.number(name, getattr(self, name), low=0, closed=True)


def odir_strength(num_classes, off_diagonal, intercept):
    """The penalty's strength for each parameter, `(K, K + 1)`."""
    each = off_diagonal / (num_classes * (num_classes - 1))
    strength = np.full((num_classes, num_classes + 1), each)
    np.fill_diagonal(strength, 0.0)
    strength[:, -1] = intercept / num_classes
    return strength
