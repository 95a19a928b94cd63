"""What vector, matrix and Dirichlet scaling have in common."""

import numpy as np
from scipy.special import log_softmax

from caltrain_tf import layers
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_number
from caltrain_tf.posthoc import cross_validation
from caltrain_tf.posthoc import likelihood
from caltrain_tf.posthoc import penalized
from caltrain_tf.posthoc.base import Calibrator

# Strengths of a penalty that cross-validation tries, for each parameter that it
# is the mean over. The strongest leave the parameters where they start.
STRENGTHS = 10.0 ** np.arange(1, -7, -1)
# A fold's fit needs no more digits than its likelihood has.
CV_ITERATIONS, CV_TOLERANCE = 100, 1e-7
TOLERANCE = 1e-10


class AffineCalibrator(Calibrator):
    """`logits @ scale_.T + bias_`, or `logits * scale_ + bias_`."""

    kind = None
    log_probabilities = False

    def __init__(self, *, cv, max_iterations):
        """Takes the options that all have."""
        check_count("cv", cv, low=2)
        check_count("max_iterations", max_iterations)
        self.cv = cv
        self.max_iterations = max_iterations

    @property
    def num_classes_(self):
        """The number of classes of the data that it was fitted to."""
        return len(self.bias_)

    def _identity(self, num_classes):
        """The parameters, as in `penalized`, that change nothing."""
        scale = np.ones((num_classes, 1))
        if self.kind == "matrix":
            scale = np.eye(num_classes)
        return np.hstack([scale, np.zeros((num_classes, 1))])

    def _keep(self, parameters, factor=1.0):
        """Sets the fitted scale and bias."""
        scale = parameters[:, :-1] * factor
        self.scale_ = scale if self.kind == "matrix" else scale[:, 0]
        self.bias_ = parameters[:, -1].copy()

    def _choose(self, rows, num_rows, path, solve, start):
        """The best of a path of penalties, and its held-out likelihood."""
        return cross_validation.choose(
            rows,
            num_rows,
            path,
            lambda fold, penalty, start: solve(
                fold, penalty, start, min(self.max_iterations, CV_ITERATIONS)
            ),
            penalized.likelihood,
            start,
            self.cv,
        )

    def _transform(self, logits):
        scale = self.scale_.reshape(self.num_classes_, -1)
        parameters = np.hstack([scale, self.bias_[:, None]])
        return penalized.apply(parameters, self._inputs(logits))

    def _inputs(self, logits):
        if self.log_probabilities:
            return log_softmax(logits, axis=1)
        return logits

    def _layer(self):
        layer = layers.Affine(
            self.num_classes_,
            self.kind,
            self.log_probabilities,
            name=f"{self.kind}_calibration",
        )
        layer.set_weights([self.scale_, self.bias_])
        return layer


class TemperedCalibrator(AffineCalibrator):
    """An affine map that is drawn towards temperature scaling.

    The objective, of logits that are already divided by their temperature, is

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))
    """

    option_names = ("penalty", "cv", "max_iterations")
    fitted_names = ("scale_", "bias_", "penalty_")

    def __init__(self, *, penalty=None, cv=5, max_iterations=200):
        """Takes the options; see the subclasses."""
        super().__init__(cv=cv, max_iterations=max_iterations)
        if penalty is not None:
            check_number("penalty", penalty, low=0, closed=True)
        self.penalty = penalty

    def _fit(self, rows):
        view = likelihood.overview(rows)
        inverse = likelihood.fit(rows, view)
        rows = rows.mapped(lambda logits: logits * logits.dtype.type(inverse))
        start = self._identity(rows.num_classes)
        scale_size = start[:, :-1].size
        unit = np.full_like(start, 1.0 / scale_size)
        unit[:, -1] = 1.0 / rows.num_classes

        def solve(
            rows, penalty, origin, max_iterations, tolerance=CV_TOLERANCE
        ):
            return penalized.fit(
                rows,
                origin,
                start,
                penalty * unit,
                max_iterations=max_iterations,
                tolerance=tolerance,
            )

        penalty = self.penalty
        if penalty is None:
            path = scale_size * STRENGTHS
            penalty, _ = self._choose(rows, view.count, path, solve, start)
        fitted = solve(rows, penalty, start, self.max_iterations, TOLERANCE)
        self._keep(fitted, inverse)
        self.penalty_ = float(penalty)
