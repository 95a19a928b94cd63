"""Curves of one probability: Platt scaling, beta and isotonic calibration.

A curve maps the logit z of class 1 to a calibrated one. Three or more classes
have a curve each, of the log-odds of the class against all others; calibrated
probabilities are divided by their sum.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit, logsumexp
from sklearn.isotonic import IsotonicRegression

from caltrain_tf import checks, layers
from caltrain_tf.posthoc import base

# Log-odds larger than that many times those of a positive example say no more.
MASKED = 1e4
# A fit with a smaller mean loss separates the labels; there is no best one.
SEPARATED = 1e-6


class BinaryCalibrator(base.Calibrator):
    """One curve for two classes, K curves for K classes.

    A subclass defines `_fit_curve`, which returns a curve's parameters, and
    `_curve`, which applies them.
    """

    def _fit(self, logits, labels, weights):
        odds = log_odds(logits.astype(np.float64))
        classes = range(odds.shape[1]) if odds.shape[1] > 1 else [1]
        curves = []
        for k, z in zip(classes, odds.T, strict=True):
            positive = labels == k
            # A masked class, with a logit such as -1e30, is never the label.
            if positive.any():
                bound = MASKED * max(np.median(np.abs(z[positive])), 1.0)
                z = np.clip(z, -bound, bound)
            curves.append(self._fit_curve(z, positive, weights))
        parameters = zip(*curves, strict=True)
        for name, values in zip(self.fitted_names, parameters, strict=True):
            setattr(self, name, _stack(values))

    def _transform(self, logits):
        odds = log_odds(logits.astype(np.float64))
        parameters = [getattr(self, name) for name in self.fitted_names]
        curves = [
            self._curve(z, *each)
            for z, *each in zip(odds.T, *parameters, strict=True)
        ]
        calibrated = np.stack(curves, axis=1)
        if len(curves) == 1:
            calibrated = np.hstack([np.zeros_like(calibrated), calibrated])
        else:
            calibrated = log_expit(calibrated)
        return calibrated.astype(logits.dtype)

    def _layer(self, **options):
        weights = self._layer_weights()
        layer = self.layer_class(weights[0].shape, **options)
        layer.set_weights(weights)
        return layer

    def _layer_weights(self):
        return [getattr(self, name) for name in self.fitted_names]


class PlattScaling(BinaryCalibrator):
    """Logistic regression on the logit: `sigmoid(a z + b)`.

    `a` and `b` maximise the likelihood of the labels, without the smoothed
    targets of Platt's paper: for a binary problem they are those of
    scikit-learn's `LogisticRegression` without a penalty. `a` may be negative,
    if the classifier prefers the wrong class. For K > 2 classes, z is the
    log-odds of each class against all others, and the K results are divided by
    their sum. Labels of `multi_label=True` share one curve.

    If a curve separates the labels, `fit` warns and chooses a finite one. A
    class without examples gets a probability of 1 / (N + 2) before the
    division.

    Args:
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        a_, b_: The parameters, `(1,)` for a binary problem, else `(K,)`.

    Example:
        >>> import caltrain_tf as ct
        >>> logits, labels = [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 0, 1, 0, 1]
        >>> ct.posthoc.PlattScaling().fit(logits, labels)
        PlattScaling(a_=[1.090...], b_=[-0.622...])

    Reference:
        Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    """

    fitted_names = ("a_", "b_")
    layer_class = layers.Platt

    def _fit_curve(self, odds, positive, weights):
        return logistic_regression([odds], positive, weights)

    def _curve(self, odds, a, b):
        return a * odds + b


class BetaCalibration(BinaryCalibrator):
    """Beta calibration: `sigmoid(a log p - b log(1 - p) + c)`, a, b >= 0.

    The curve is the identity for a = b = 1, c = 0, may be S-shaped or inverse
    S-shaped, and never decreases. `a`, `b` and `c` maximise the likelihood of
    the labels. Several classes or labels, separated labels and classes without
    examples are handled as by `PlattScaling`.

    Args:
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        a_, b_, c_: The parameters, `(1,)` for a binary problem, else `(K,)`.

    Example:
        >>> import caltrain_tf as ct
        >>> logits, labels = [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 0, 1, 0, 1]
        >>> ct.posthoc.BetaCalibration().fit(logits, labels)
        BetaCalibration(a_=[2.46...], b_=[0.03...], c_=[1.38...])

    Reference:
        Kull et al., "Beta calibration: a well-founded and easily implemented
        improvement on logistic calibration for binary classifiers", 2017.
    """

    fitted_names = ("a_", "b_", "c_")
    layer_class = layers.Beta

    def _fit_curve(self, odds, positive, weights):
        columns = [log_expit(odds), -log_expit(-odds)]
        return logistic_regression(columns, positive, weights, lowest=0.0)

    def _curve(self, odds, a, b, c):
        return a * log_expit(odds) - b * log_expit(-odds) + c


class IsotonicCalibration(BinaryCalibrator):
    """The non-decreasing curve with the smallest squared error.

    The curve is that of scikit-learn's `IsotonicRegression`, with straight
    lines between the examples, clipped to [1 / (N + 2), 1 - 1 / (N + 2)] for N
    examples. Lines are straight over what is given: logits, or probabilities
    with `from_probs=True`. Several classes or labels are handled as by
    `PlattScaling`.

    It has as many degrees of freedom as the data support; below about a
    thousand examples, `PlattScaling` or `BetaCalibration` is mostly better.

    Args:
        from_probs, multi_label, ignore_class: See `TemperatureScaling`.

    Attributes:
        x_: Logits, or probabilities, where lines begin and end, `(1, m)` for a
            binary problem and `(K, m)` otherwise. The last point of shorter
            curves is repeated.
        y_: The calibrated probabilities there.

    Example:
        >>> import caltrain_tf as ct
        >>> logits, labels = [-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]
        >>> scaler = ct.posthoc.IsotonicCalibration().fit(logits, labels)
        >>> scaler.predict_proba([-1.0, 0.5, 1.5]).round(4).tolist()
        [0.1667, 0.5, 0.75]

    Reference:
        Zadrozny and Elkan, "Transforming Classifier Scores into Accurate
        Multiclass Probability Estimates", 2002.
    """

    fitted_names = ("x_", "y_")
    layer_class = layers.Isotonic

    def _fit_curve(self, odds, positive, weights):
        curve = IsotonicRegression().fit(
            self._abscissa(odds), positive, weights
        )
        points = curve.X_thresholds_, curve.y_thresholds_
        smallest = 1.0 / (len(odds) + 2)
        # Where lines cross the bounds, points make the clipped curve of lines.
        crossings = np.interp([smallest, 1 - smallest], *points[::-1])
        x = np.sort(np.append(points[0], crossings))
        return x, np.clip(np.interp(x, *points), smallest, 1 - smallest)

    def _abscissa(self, odds):
        return expit(odds) if self.from_probs else odds

    def _curve(self, odds, x, y):
        return logit(np.interp(self._abscissa(odds), x, y))

    def _layer_weights(self):
        return self.x_, logit(self.y_)


def log_odds(logits):
    """log(p / (1 - p)) of every class `(n, K)`; of class 1 `(n, 1)` for two."""
    if logits.shape[1] == 2:
        return logits[:, 1:] - logits[:, :1]
    # 1 - p of the largest probability may round to 0.
    top = logits.argmax(axis=1)[:, None]
    largest = logits.max(axis=1, keepdims=True)
    rest = logits.copy()
    np.put_along_axis(rest, top, -np.inf, axis=1)
    others = logsumexp(rest, axis=1, keepdims=True)
    logs = rest - np.logaddexp(largest, others)
    odds = logs - np.log1p(-np.exp(logs))
    np.put_along_axis(odds, top, largest - others, axis=1)
    return odds


def logistic_regression(columns, positive, weights, lowest=-np.inf):
    """The most likely coefficient >= `lowest` of each column, and intercept."""
    if positive.all() or not positive.any():
        rare = 1.0 / (len(positive) + 2)
        constant = logit(1 - rare if positive.all() else rare)
        return *np.zeros(len(columns)), constant
    columns = np.stack(columns)
    means = columns @ weights
    centred = columns - means[:, None]
    spreads = np.sqrt(centred**2 @ weights)
    # The mean of equal numbers has rounding errors.
    spreads[spreads <= 1e-12 * np.abs(means)] = 1.0
    features = np.vstack([centred / spreads[:, None], np.ones(len(positive))])
    signs = np.where(positive, 1.0, -1.0)

    def objective(parameters):
        margins = signs * (parameters @ features)
        slopes = -signs * weights * expit(-margins)
        return -weights @ log_expit(margins), features @ slopes

    found = minimize(
        objective,
        np.append(np.ones(len(columns)), 0.0),
        jac=True,
        method="L-BFGS-B",
        bounds=[(lowest, None)] * len(columns) + [(None, None)],
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000},
    )
    if found.fun < SEPARATED:
        checks.warn(
            "A curve separates the labels, so that they determine no slope. "
            "The fit is finite, but arbitrary and over-confident."
        )
    slopes = found.x[:-1] / spreads
    return *slopes, found.x[-1] - slopes @ means


def _stack(values):
    """Scalars as `(curves,)`; arrays as rows, continued by their last value."""
    if np.ndim(values[0]) == 0:
        return np.array(values)
    longest = max(map(len, values))
    return np.stack([np.pad(v, (0, longest - len(v)), "edge") for v in values])
