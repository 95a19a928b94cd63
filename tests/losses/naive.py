"""The paper's formulas in float64 NumPy, as loops, for comparison."""

import math

import numpy as np


def softmax(logits):
    logits = np.asarray(logits, "float64")
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _true_probability(labels, probs):
    return np.array([p[y] for y, p in zip(labels, probs, strict=True)])


def nll(labels, probs, label_smoothing=0.0):
    num_classes = probs.shape[1]
    values = []
    for y, p in zip(labels, probs, strict=True):
        target = np.full(num_classes, label_smoothing / num_classes)
        target[y] += 1 - label_smoothing
        values.append(
            -sum(t * math.log(q) for t, q in zip(target, p, strict=True))
        )
    return np.array(values)


def focal(labels, probs, gamma=3.0):
    p = _true_probability(labels, probs)
    if gamma == "flsd53":
        gamma = np.where(p < 0.2, 5, 3)
    return -((1 - p) ** gamma) * np.log(p)


def mse(labels, probs):
    return np.array(
        [
            sum((q - (k == y)) ** 2 for k, q in enumerate(p))
            for y, p in zip(labels, probs, strict=True)
        ]
    )


def dual_focal(labels, probs, gamma=5.0):
    values = []
    for y, p in zip(labels, probs, strict=True):
        below = max([q for q in p if q < p[y]], default=0.0)
        values.append(-((1 - p[y] + below) ** gamma) * math.log(p[y]))
    return np.array(values)


def bsce_gra(labels, probs, gamma=5.0, norm=1, fixed=None):
    """`fixed` are the probabilities of the factor without gradient."""
    fixed = probs if fixed is None else fixed
    values = []
    for y, p, q in zip(labels, probs, fixed, strict=True):
        powers = [abs((k == y) - x) ** norm for k, x in enumerate(q)]
        weight = sum(powers) ** (gamma / norm)
        values.append(-weight * math.log(p[y]))
    return np.array(values)


def _correct(labels, probs):
    return (probs.argmax(axis=1) == labels).astype("float64")


def _soft_binned(
    values,
    outcomes,
    weights,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="bin",
    lower=0.0,
    smoothing=0.0,
):
    """Equation 11 or 12 without the root, one bin after the other."""
    width = (1 - lower) / num_bins
    centres = lower + (np.arange(num_bins) + 0.5) * width
    u = softmax(-((values[:, None] - centres) ** 2) / temperature)
    u = (1 - smoothing) * u + smoothing / num_bins
    total = 0.0
    for j in range(num_bins):
        mass = weights * u[:, j]
        if mass.sum() == 0:
            continue
        accuracy = np.average(outcomes, weights=mass)
        if binning == "bin":
            gap = abs(accuracy - np.average(values, weights=mass))
            total += mass.sum() * gap**norm
        else:
            total += np.sum(mass * np.abs(accuracy - values) ** norm)
    return total / sum(weights)


def sb_ece(
    labels,
    probs,
    norm=2,
    binning="label",
    root=True,
    lower=0.0,
    weights=None,
    **options,
):
    weights = np.ones(len(labels)) if weights is None else weights
    released = lower == "chance" and binning == "label"
    value = _soft_binned(
        probs.max(axis=1),
        _correct(labels, probs),
        weights,
        norm=norm,
        binning=binning,
        lower=1 / probs.shape[1] if lower == "chance" else lower,
        smoothing=1e-5 if released else 0.0,
        **options,
    )
    return value ** (1 / norm) if root else value


def sb_marginal_ece(labels, probs, norm=2, root=True, weights=None, **options):
    weights = np.ones(len(labels)) if weights is None else weights
    value = np.mean(
        [
            _soft_binned(
                probs[:, k], labels == k, weights, norm=norm, **options
            )
            for k in range(probs.shape[1])
        ]
    )
    return value ** (1 / norm) if root else value


def _entropy(p):
    smoothed = (1 - 1e-5) * p + 1e-5 / len(p)
    return -sum(q * math.log(q) for q in smoothed)


def soft_avuc(labels, probs, threshold=0.5, temperature=0.1, weights=None):
    weights = np.ones(len(labels)) if weights is None else weights
    agree = disagree = 0.0
    for w, a, p in zip(weights, _correct(labels, probs), probs, strict=True):
        h = _entropy(p)
        share = h / math.log(len(p))
        odds = share * (1 - threshold) / ((1 - share) * threshold)
        t = 1 / (1 + odds ** (-1 / temperature))
        uncertain, certain = t * math.tanh(h), (1 - t) * (1 - math.tanh(h))
        agree += w * (certain if a else uncertain)
        disagree += w * (uncertain if a else certain)
    return math.log(1 + disagree / max(agree, 1e-5))


def avuc(labels, probs, threshold=None, weights=None):
    weights = np.ones(len(labels)) if weights is None else weights
    if threshold is None:
        threshold = math.log(probs.shape[1]) / 2
    agree = disagree = 0.0
    for w, a, p in zip(weights, _correct(labels, probs), probs, strict=True):
        h, c = _entropy(p), max(p)
        certain = h < threshold
        value = (c if a else 1 - c) * (
            1 - math.tanh(h) if certain else math.tanh(h)
        )
        if bool(a) == certain:
            agree += w * value
        else:
            disagree += w * value
    return math.log(1 + disagree / max(agree, 1e-5))


def mmce(labels, probs, width=0.4, weighted=False, root=False, weights=None):
    weights = np.ones(len(labels)) if weights is None else weights
    c, a = probs.max(axis=1), _correct(labels, probs)
    count = weights.sum()
    if weighted:
        count = np.array([weights[a == each].sum() for each in a])
    e = weights * (c - a) / count
    total = e @ np.exp(-np.abs(c[:, None] - c) / width) @ e
    return math.sqrt(total) if root else total


def esd(labels, probs, weights=None):
    """By triples of distinct examples if weighted, else as it is defined."""
    c, a = probs.max(axis=1), _correct(labels, probs)
    n = len(c)
    if n < 3:
        return 0.0
    g = (a - c) * (c <= c[:, None])
    if weights is None:
        total = 0.0
        for i in range(n):
            others = np.delete(g[i], i)
            total += others.mean() ** 2 - others.var(ddof=1) / (n - 1)
        return total / n
    total = mass = 0.0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if len({i, j, k}) == 3:
                    weight = weights[i] * weights[j] * weights[k]
                    total += weight * g[i, j] * g[i, k]
                    mass += weight
    return total / mass


def mdca(labels, probs, weights=None):
    gaps = [
        abs(
            np.average(probs[:, k], weights=weights)
            - np.average(labels == k, weights=weights)
        )
        for k in range(probs.shape[1])
    ]
    return sum(gaps) / len(gaps)


def dca(labels, probs, weights=None):
    confidence = np.average(probs.max(axis=1), weights=weights)
    accuracy = np.average(_correct(labels, probs), weights=weights)
    return abs(confidence - accuracy)


def mbls(labels, logits, margin=10.0, weights=None):
    return np.average(
        [
            sum(max(0.0, max(z) - x - margin) for x in z) / len(z)
            for z in np.asarray(logits, "float64")
        ],
        weights=weights,
    )


def acls(
    labels,
    logits,
    margin=10.0,
    positive=1.0,
    negative=0.1,
    weights=None,
    fixed=None,
):
    """`fixed` are the logits whose largest has no gradient."""
    logits = np.asarray(logits, "float64")
    fixed = logits if fixed is None else np.asarray(fixed, "float64")
    values = []
    for z, constant in zip(logits, fixed, strict=True):
        top = int(np.argmax(z))
        above = max(0.0, z[top] - margin) ** 2
        below = [
            max(0.0, max(constant) - z[k] - margin) ** 2
            for k in range(len(z))
            if k != top
        ]
        values.append(positive * above + negative * sum(below) / len(below))
    return np.average(values, weights=weights)


def finite_difference(function, logits, step=1e-5):
    """Gradient of `function(logits)` by central differences in float64."""
    logits = np.asarray(logits, "float64")
    gradient = np.zeros_like(logits)
    for index in np.ndindex(logits.shape):
        ahead, back = logits.copy(), logits.copy()
        ahead[index] += step
        back[index] -= step
        gradient[index] = (function(ahead) - function(back)) / (2 * step)
    return gradient


def finite_difference_rows(function, x, step=1e-4):
    """The Hessian of `function(x)`, by differences of differences."""
    x = np.asarray(x, "float64")
    return np.stack(
        [
            finite_difference(
                lambda y, e=e: (function(y + e) - function(y - e)) / (2 * step),
                x,
                step,
            )
            for e in step * np.eye(len(x))
        ]
    )
