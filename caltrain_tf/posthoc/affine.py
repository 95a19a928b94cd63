"""Vector and matrix scaling: affine maps of the logits with a penalty.

    mean NLL(outputs) + sum(strength * (parameters - centre)^2)

`regression.fit` minimises this objective. The strength is chosen by
cross-validation, in which each fit starts where the fit with another strength
ended (`CrossValidation`).
"""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.special import log_softmax

from caltrain_tf import checks, layers
from caltrain_tf.inputs import available_cores, shared_threads
from caltrain_tf.posthoc import data, regression
from caltrain_tf.posthoc.base import Calibrator
from caltrain_tf.posthoc.temperature import most_likely, survey

# Strengths that cross-validation tries, for each parameter in the mean of the
# penalty. The strongest ones leave the parameters where they start.
STRENGTHS = 10.0 ** np.arange(1, -7, -1)
# A path of strengths ends when this many in a row were no better, or one was
# worse by this factor.
PATIENCE, CLEARLY_WORSE = 2, 1.02
# Number of folds by default.
FOLDS = 5
# From these numbers on, rows of a vector are left out one by one instead. With
# fewer of them a row moves the fit too far for the formula, which then prefers
# penalties that are too weak.
LEAST_ROWS, LEAST_ROWS_PER_CLASS = 1000, 30
# Parameters x rows x folds that cross-validation may take; where all folds
# would take more, only the first ones are held out.
LARGEST_FOLDS = 1.2e8
# Rows x classes from which folds in memory are fitted in threads.
SMALLEST_THREADED = 2**18
# Fits of cross-validation end at an expected decrease of the objective far
# below the standard error of a held-out loss; on few rows later, because weak
# penalties move their fits far.
CV_ITERATIONS, CV_TOLERANCE, CV_TOLERANCE_PER_ROW = 20, 1e-4, 1e-7


class AffineCalibrator(Calibrator):
    """`inputs @ scale_.T + bias_`, or `inputs * scale_ + bias_`.

    A subclass defines the inputs and `_fit_parameters`.
    """

    kind = None
    log_probabilities = False

    def __init__(self, *, cv, max_iterations, **options):
        super().__init__(**options)
        self.cv = cv if cv is None else checks.count("cv", cv, low=2)
        self.max_iterations = checks.count("max_iterations", max_iterations)

    def _fit(self, rows):
        identity = self._identity(rows.num_classes)
        with regression.blas_threads(identity), shared_threads():
            self._fit_parameters(rows)

    def _transform(self, logits):
        scale = self.scale_.reshape(len(self.bias_), -1)
        parameters = np.hstack([scale, self.bias_[:, None]])
        return regression.apply(parameters, self._inputs(logits))

    def _inputs(self, logits):
        return log_softmax(logits, axis=1) if self.log_probabilities else logits

    def _fit_all(self, rows, start, centre, strength):
        """Fits the scale and bias to all rows, whose logits are the inputs."""
        parameters = regression.fit(
            rows,
            start,
            centre,
            strength,
            max_iterations=self.max_iterations,
        )
        scale = parameters[:, :-1].copy()
        self.scale_ = scale if self.kind == "matrix" else scale[:, 0]
        self.bias_ = parameters[:, -1].copy()

    def _identity(self, num_classes):
        """The parameters of the identity map."""
        scale = np.ones((num_classes, 1))
        if self.kind == "matrix":
            scale = np.eye(num_classes)
        return np.hstack([scale, np.zeros((num_classes, 1))])

    def _expected_classes(self):
        return len(self.bias_)

    def _layer(self, **options):
        layer = layers.Affine(
            len(self.bias_),
            self.kind,
            self.log_probabilities,
            name=f"{self.kind}_calibration",
            **self._layer_options(),
            **options,
        )
        layer.set_weights([self.scale_, self.bias_])
        return layer

    def _layer_options(self):
        """Options of `layers.Affine` that a fit has found."""
        return {}

    def _check_fitted_values(self):
        shape = (self.num_classes_,)
        for name, expected in (
            ("bias_", shape),
            ("scale_", shape * 2 if self.kind == "matrix" else shape),
        ):
            if np.shape(getattr(self, name)) != expected:
                raise ValueError(
                    f"`{name}` must have the shape {expected}. Received: "
                    f"{name}.shape={np.shape(getattr(self, name))}"
                )


class TemperedCalibrator(AffineCalibrator):
    """An affine map that is regularised towards temperature scaling.

    For logits that are already divided by their temperature, the objective is

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))
    """

    fitted_names = ("scale_", "bias_", "penalty_")

    def __init__(
        self,
        *,
        penalty=None,
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
        if penalty is not None:
            penalty = checks.number("penalty", penalty, low=0, closed=True)
        self.penalty = penalty

    def _fit_parameters(self, rows):
        view = survey(rows)
        inverse = most_likely(rows, view)
        identity = self._identity(rows.num_classes)
        scale_size = identity[:, :-1].size
        unit = np.full_like(identity, 1.0 / scale_size)
        unit[:, -1] = 1.0 / rows.num_classes

        rows = rows.changed(
            lambda logits: np.multiply(
                logits, logits.dtype.type(inverse), order="F"
            )
        )
        penalty, start = self.penalty, identity
        if penalty is None:
            path = scale_size * STRENGTHS
            strengths = [value * unit for value in path]
            validation = CrossValidation(
                rows, view.count, self.cv, identity, identity
            )
            best, _, start = validation.choose(strengths)
            penalty = path[best]
        self._fit_all(rows, start, identity, penalty * unit)
        self.scale_ = self.scale_ * inverse
        self.penalty_ = float(penalty)

    def _check_fitted_values(self):
        super()._check_fitted_values()
        checks.number("penalty_", self.penalty_, low=0, closed=True)


class VectorScaling(TemperedCalibrator):
    """Scales and shifts the logit of each class: `logits * scale + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - 1)^2) + mean(bias^2))

    so that with few data it falls back to temperature scaling. A penalty of 0
    gives vector scaling as it was published.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of cross-validation folds. By default each example is left
            out by itself, which a formula does without further fits; or 5 folds
            if there are fewer than 1,000 examples, or 30 per class.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K,)`, including the temperature.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> shifted = logits + [1, 0, 0]
        >>> scaler = ct.posthoc.VectorScaling().fit(shifted, labels)
        >>> float(np.round(scaler.bias_[0] - scaler.bias_[1], 0))
        -2.0

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "vector"


class MatrixScaling(TemperedCalibrator):
    """Applies any affine map to the logits: `logits @ scale.T + bias`.

    The logits are first divided by the temperature of temperature scaling. Then
    the fit minimises

        mean NLL + penalty (mean((scale - identity)^2) + mean(bias^2))

    As published, without a penalty, its K^2 parameters overfit all but huge
    data sets. With the penalty, it falls back to temperature scaling.

    Args:
        penalty: A number of at least 0; chosen by cross-validation if None.
        cv: Number of cross-validation folds, 5 by default. For large data, only
            the first folds are held out.
        max_iterations: Largest number of iterations of L-BFGS.
        from_probs: Whether predictions are probabilities instead of logits.
            Probabilities below 1e-12 are raised to it.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Attributes:
        scale_: `(K, K)`, including the temperature.
        bias_: `(K,)`.
        penalty_: The penalty of the fit.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=3000)
        >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
        >>> mixed = logits + 0.5 * logits[:, [1, 2, 0]]
        >>> scaler = ct.posthoc.MatrixScaling().fit(mixed, labels)
        >>> scaler.scale_.shape
        (3, 3)

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """

    kind = "matrix"


class HeldOut:
    """A fit, and its losses on rows that it has not seen.

    Args:
        parameters: Parameters of the fit, `(K, m)`.
        rows: The held-out rows. If they come in the same order in each pass,
            their losses are kept.
        leverage: If these are the rows of the fit, which are to be left out
            one by one, the result of `PairCurvature.leverage`; otherwise None.
    """

    def __init__(self, parameters, rows, leverage):
        self.parameters = parameters
        self.leverage = leverage
        self.kept = None
        if isinstance(rows, data.Rows):
            self.kept = np.concatenate(rows.map(self.losses))

    def losses(self, inputs, labels, weights):
        """The negative log-likelihood of each row."""
        outputs = regression.apply(self.parameters, inputs)
        if self.leverage is not None:
            regression.leave_out(
                outputs, self.leverage, inputs, labels, weights
            )
        return regression.losses_of(outputs, labels)


class CrossValidation:
    """Fits with several strengths of a penalty, and their held-out losses.

    Fits are in float32 and end early.

    Args:
        rows: Rows whose logits are the inputs.
        count: Number of rows; of a single one, nothing can be held out.
        cv: Number of folds. If None, the rows of a vector are left out one by
            one if there are enough of them, and otherwise in `FOLDS` folds.
        start: Parameters where the first fits start.
        centre: Parameters where the penalty is 0.
        most_folds: Number of folds that are held out at most.
    """

    def __init__(self, rows, count, cv, start, centre, most_folds=math.inf):
        self.start, self.centre = start, centre
        self.tolerance = min(CV_TOLERANCE, CV_TOLERANCE_PER_ROW * count)
        self.leaves_out_one = (
            cv is None
            and not regression.is_matrix(start)
            and count >= max(LEAST_ROWS, LEAST_ROWS_PER_CLASS * len(start))
        )
        self.pairs = []
        if count < 2:
            return

        rows = rows.changed(lambda inputs: np.asfortranarray(inputs, "f4"))
        if self.leaves_out_one:
            self.pairs = [(rows, rows)]
        else:
            num_folds = min(cv or FOLDS, int(count))
            used = max(int(LARGEST_FOLDS / (count * start.size)), 1)
            folds = rows.folds(num_folds)
            self.pairs = list(itertools.islice(folds, min(used, most_folds)))
        self.is_threaded = (
            len(self.pairs) > 1
            and isinstance(self.pairs[0][0], data.Rows)
            and count * len(start) > SMALLEST_THREADED
            and not regression.is_large(start)
        )

    def choose(self, strengths):
        """Finds the strength of the smallest held-out loss.

        Args:
            strengths: Arrays `(K, m)`, the strongest first.

        Returns:
            The index of the best strength, its held-out loss, and parameters as
            a start for the fit to all rows.
        """
        best, best_value, best_start, worse = 0, math.inf, self.start, 0
        fits = None
        for index, strength in enumerate(strengths if self.pairs else ()):
            fits = self.fit(strength, fits)
            mass, value = self.sum(_total_loss, fits)
            value /= mass
            if value < best_value:
                best, best_value, worse = index, value, 0
                best_start = self.middle(fits)
            else:
                worse += 1
                if worse == PATIENCE or value > CLEARLY_WORSE * best_value:
                    break
        return best, best_value, best_start

    def fit(self, strength, before=None):
        """Fits outside of each fold.

        Args:
            strength: Strength of the penalty, `(K, m)`.
            before: The result for another strength, to start from.

        Returns:
            A `HeldOut` for each fold.
        """
        starts = [self.start] * len(self.pairs)
        if before is not None:
            starts = [fit.parameters for fit in before]
        # One curvature serves all folds. Where the fit with another strength
        # ended, it is about the same as at the optimum.
        rows, _ = self.pairs[0]
        curvature = regression.measure_curvature(rows, starts[0])
        leverage = None
        if self.leaves_out_one:
            leverage = curvature.leverage(2 * strength)

        def fit_one(pair, start):
            training, held_out = pair
            parameters = regression.fit(
                training,
                start,
                self.centre,
                strength,
                max_iterations=CV_ITERATIONS,
                tolerance=self.tolerance,
                curvature=curvature,
            )
            return HeldOut(parameters, held_out, leverage)

        if not self.is_threaded:
            return list(map(fit_one, self.pairs, starts))
        with ThreadPoolExecutor(available_cores()) as pool:
            return list(pool.map(fit_one, self.pairs, starts))

    def middle(self, fits):
        """The mean of the parameters of fits, close to those of all rows."""
        return np.mean([fit.parameters for fit in fits], axis=0)

    def sum(self, function, *results):
        """Sums a function of the losses of all held-out rows.

        Args:
            function: Function of weights `(n,)` and, for each of `results`,
                losses `(n,)`. It returns a tuple of sums over rows.
            *results: Results of `fit`.

        Returns:
            An array of the sums.
        """
        sums = 0.0
        for (_, rows), *fits in zip(self.pairs, *results, strict=True):

            def block(inputs, labels, weights, fits=fits):
                losses = [fit.losses(inputs, labels, weights) for fit in fits]
                return function(_weights_of(labels, weights), *losses)

            if all(fit.kept is not None for fit in fits):
                weights = _weights_of(rows.labels, rows.weights)
                part = function(weights, *(fit.kept for fit in fits))
            else:
                part = rows.sum(block)
            sums = sums + np.asarray(part)
        return sums


def _weights_of(labels, weights):
    return np.ones(len(labels)) if weights is None else weights


def _total_loss(weights, losses):
    return weights.sum(), weights @ losses
