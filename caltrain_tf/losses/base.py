"""Turns formulas into functions of tensors and Keras losses.

Each loss is written once, as a function of a `caltrain_tf.inputs.Batch`
and of the loss's own options:

    @loss_function(width=partial(checks.number, low=0.01, closed=True))
    def mmce(batch, *, width=0.4):
        ...

    class MMCE(FunctionLoss, function=mmce, name="mmce"):
        ...

The decorator adds the arguments that all losses have (`y_true`, `y_pred`,
`from_logits` and so on), checks the options and completes the docstring. The
class has the same options in its constructor, as attributes and in its config.
"""

import inspect
import textwrap

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.replicas import replica_count, sum_over_replicas

_TENSORS = """
        y_true: Class ids `(...)`, or label distributions `(..., classes)`;
            0 or 1 for binary problems.
        y_pred: Probabilities, or logits, `(..., classes)`; `(..., 1)` is the
            probability or logit of class 1. Leading axes are the batch and,
            if there are more, positions such as pixels or tokens."""
_SHARED = """
        from_logits: Whether `y_pred` holds logits.
        multi_label: Whether the last axis holds independent labels, each 0 or
            1, instead of classes. They are pooled.
        ignore_class: Label of the examples that do not count, such as -1."""
_WEIGHTS = """
        sample_weight: Weights `(batch,)` or `(...)` of the examples inside
            the sums. Their scale does not matter; if all are 0, or the batch
            is empty, the loss is 0.
        cross_replica: Whether to take all replicas' batches as one."""
_KERAS = """
        name: The loss's name.
        reduction: As in `keras.losses.Loss`.
        dtype: Data type of the result; the computation is in float32."""


def _check_ignore_class(name, value):
    return value if value is None else checks.count(name, value, low=-(2**31))


# The options that every loss has.
SHARED = {"from_logits": False, "multi_label": False, "ignore_class": None}
SHARED_CHECKS = {
    "from_logits": checks.flag,
    "multi_label": checks.flag,
    "ignore_class": _check_ignore_class,
}


check_flag = checks.flag


def check_share(name, value):
    """Returns `value` if it is a number in [0, 1)."""
    number = checks.number(name, value, low=0, high=1, closed=True)
    if number == 1:
        raise ValueError(f"`{name}` must be < 1. Received: {name}={value!r}")
    return number


def check_options(options, checks):
    """Returns the options, checked and converted to plain values."""
    return {
        name: checks[name](name, value) if name in checks else value
        for name, value in options.items()
    }


def loss_function(per_example=False, **checks):
    """Decorates a formula of a `Batch`; see the docstring of this module.

    Args:
        per_example: Whether the formula returns a value for each example,
            `(n,)`, instead of a scalar.
        **checks: For each option a function `(name, value)` that returns the
            value to use, or raises.
    """
    checks = SHARED_CHECKS | checks
    shared = SHARED
    if not per_example:
        checks["cross_replica"] = check_flag
        shared = {**SHARED, "sample_weight": None, "cross_replica": False}

    def decorate(formula):
        batch, *own = inspect.signature(formula).parameters.values()
        signature = inspect.Signature(
            [
                batch.replace(name="y_true"),
                batch.replace(name="y_pred"),
                *own,
                *_parameters(shared, inspect.Parameter.KEYWORD_ONLY),
            ]
        )

        def function(*args, **kwargs):
            arguments = _bind(signature, formula.__name__, args, kwargs)
            arguments = check_options(arguments, checks)
            options = {name: arguments.pop(name) for name in function.options}
            batch = inputs.standardize(**arguments)
            value = function.of_batch(batch, **options)
            return restore_shape(value, batch) if per_example else value

        def of_batch(batch, **options):
            # A replica without examples takes part in the others' sums.
            if batch.predictions.shape[0] == 0 and not batch.cross_replica:
                zeros = ops.sum(batch.predictions, axis=-1)
                return zeros if per_example else ops.sum(zeros)
            return inputs.nan_where_invalid(formula(batch, **options), batch)

        function.of_batch = of_batch
        function.per_example = per_example
        function.options = {option.name: option.default for option in own}
        function.checks = checks
        function.sections = _split(formula.__doc__)
        head, option_texts, rest = function.sections
        weights = "" if per_example else _WEIGHTS
        function.__doc__ = (
            f"{head}Args:{_TENSORS}{option_texts}{_SHARED}{weights}{rest}"
        )
        function.__name__ = function.__qualname__ = formula.__name__
        function.__module__ = formula.__module__
        function.__signature__ = signature
        return function

    return decorate


class FunctionLoss(keras.losses.Loss):
    """A `keras.losses.Loss` around a decorated function.

    A value of a whole batch cannot be weighted afterwards, as Keras weights the
    values of examples. Therefore the function takes the weights, and
    `reduction` gets a copy of the value for each example that counts.
    """

    function = None
    default_name = None

    def __init_subclass__(cls, function=None, name=None, **kwargs):
        """Gives the class the constructor and docstring of its function."""
        super().__init_subclass__(**kwargs)
        if function is None:
            return
        cls.function = staticmethod(function)
        cls.default_name = name
        positional = {**function.options, "from_logits": False, "name": name}
        keywords = {
            "multi_label": False,
            "ignore_class": None,
            "reduction": "sum_over_batch_size",
            "dtype": None,
        }
        signature = inspect.Signature(
            [
                *_parameters(
                    positional, inspect.Parameter.POSITIONAL_OR_KEYWORD
                ),
                *_parameters(keywords, inspect.Parameter.KEYWORD_ONLY),
            ]
        )

        def __init__(self, *args, **kwargs):
            arguments = _bind(signature, cls.__name__, args, kwargs)
            keras.losses.Loss.__init__(
                self,
                **{n: arguments.pop(n) for n in ("name", "reduction", "dtype")},
            )
            self.options = check_options(arguments, function.checks)
            self.__dict__.update(self.options)

        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        __init__.__signature__ = signature.replace(
            parameters=[itself, *signature.parameters.values()]
        )
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = __init__
        head, option_texts, rest = function.sections
        example = rest[rest.index("\n\n    Example") :]
        cls.__doc__ = (
            f"{cls.__doc__}\n\n    {head}"
            f"Args:{option_texts}{_SHARED}{_KERAS}{example}"
        )

    def of_batch(self, batch):
        """Returns the function's value for a `Batch`."""
        options = {name: self.options[name] for name in self.function.options}
        return self.function.of_batch(batch, **options)

    def call(self, y_true, y_pred):
        """Returns a value for each example, `(...)`."""
        batch = self._standardize(y_true, y_pred)
        return copies(self.of_batch(batch), batch)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss, reduced as `reduction` says."""
        with keras.name_scope(self.name):
            batch = self._standardize(y_true, y_pred, sample_weight)
            value = self.of_batch(batch)
            return ops.cast(reduce(value, batch, self.reduction), self.dtype)

    def _standardize(self, y_true, y_pred, sample_weight=None):
        shared = {name: self.options[name] for name in SHARED}
        return inputs.standardize(
            y_true, y_pred, sample_weight=sample_weight, **shared
        )

    def get_config(self):
        """Returns the arguments of the constructor.

        A loss with a custom name also has the name of its kind, as `loss`.
        """
        kind = {"loss": self.default_name}
        return {
            **super().get_config(),
            **self.options,
            **(kind if self.name != self.default_name else {}),
        }

    @classmethod
    def from_config(cls, config):
        """Returns the loss whose `get_config` gave `config`."""
        return cls(**{k: v for k, v in config.items() if k != "loss"})

    def __repr__(self):
        """Returns the call that makes this loss, without the defaults."""
        return describe(self, self.get_config())


def describe(loss, config):
    """The call that makes `loss`, without the defaults."""
    chosen = [
        f"{name}={config[name]!r}"
        for name, parameter in inspect.signature(type(loss)).parameters.items()
        if name in config and config[name] != parameter.default
    ]
    return f"{type(loss).__name__}({', '.join(chosen)})"


def reduce(value, batch, reduction):
    """Applies Keras' `reduction` to a scalar or to n values.

    Args:
        value: A value for each example, `(n,)`, or one value for the whole
            batch, which is copied to every example that counts.
        batch: The `Batch`.
        reduction: As in `keras.losses.Loss`.
    """
    is_mean = reduction not in (None, "none", "sum")
    if len(value.shape) == 0:
        if is_mean:
            return value / replica_count()
        values = value * ops.cast(batch.sample_weight != 0, value.dtype)
    else:
        values = value * batch.sample_weight
    if not is_mean:
        if reduction == "sum":
            return ops.sum(values)
        return restore_shape(values, batch)
    if reduction == "mean_with_sample_weight":
        count = ops.sum(batch.sample_weight)
    else:
        # As in Keras: a weight of 0 counts, an example left out does not.
        counts = ops.ones_like(values) if batch.mask is None else batch.mask
        count = ops.sum(counts)
    return ops.divide_no_nan(ops.sum(values), count) / replica_count()


def batch_value(loss, batch, shared, is_part=False):
    """Returns the scalar of any kind of loss for a `Batch`.

    Args:
        loss: A loss of this package, which has `of_batch`, another
            `keras.losses.Loss`, or a function `(y_true, y_pred)`.
        batch: The `Batch`.
        shared: Options to pass to a function that has them.
        is_part: Whether the weights select some of the examples. Losses that
            do not see the weights must then return a value for each example.

    Returns:
        The loss's own scalar, or the weighted mean of its values.
    """
    is_ours = hasattr(loss, "of_batch")
    if is_ours:
        values = loss.of_batch(batch)
    elif isinstance(loss, keras.losses.Loss):
        values = loss.call(*batch.given)
    else:
        values = loss(*batch.given, **accepted(loss, shared))
    values = ops.cast(values, "float32")
    if not is_ours:
        values = inputs.nan_where_invalid(values, batch)
        if is_part and len(values.shape) == 0:
            raise ValueError(
                "`loss` must return a value for each example. Received: "
                f"loss={loss!r}, which returned a scalar"
            )
    if len(values.shape) == 0:
        return values
    if len(values.shape) > 1:
        values = ops.mean(values, axis=tuple(range(1, len(values.shape))))
    sums = ops.stack([ops.sum(batch.weight * values), ops.sum(batch.weight)])
    if batch.cross_replica:
        sums = sum_over_replicas(sums)
    return ops.divide_no_nan(sums[0], sums[1])


def check_agreement(role, part, shared, whole):
    """Raises if a part of a loss has other options than the whole.

    Args:
        role: Name of the part, such as `primary`.
        part: The part.
        shared: The options of the whole.
        whole: Name of the whole in the error, such as `composite`.
    """
    for option, value in shared.items():
        theirs = getattr(part, option, value)
        if theirs != value and (
            option == "from_logits" or hasattr(part, "of_batch")
        ):
            raise ValueError(
                f"`{role}` and the {whole} loss must agree on `{option}`. "
                f"Received: {role}.{option}={theirs}, {option}={value}"
            )


def accepted(function, options):
    """The options without the shared ones that `function` does not have."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # Some C functions have no signature.
        parameters = ()
    return {
        name: value
        for name, value in options.items()
        if name in parameters or name not in SHARED_CHECKS
    }


def copies(value, batch):
    """Returns `value` for each example, in the shape of the examples."""
    if len(value.shape) == 0:
        value = value * ops.ones_like(batch.sample_weight)
    return restore_shape(value, batch)


def restore_shape(values, batch):
    """Values `(n,)` in the shape `(...)` of the batch."""
    if len(batch.shape) == 1:
        return values
    return ops.reshape(values, batch.shape)


def _parameters(defaults, kind):
    return [
        inspect.Parameter(name, kind, default=default)
        for name, default in defaults.items()
    ]


def _bind(signature, name, args, kwargs):
    """The arguments by name, with their defaults."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _split(docstring):
    """Splits a docstring at `Args:` and after the texts of the options."""
    # Python 3.13 strips the indentation of docstrings, earlier ones keep it.
    docstring = textwrap.indent(inspect.cleandoc(docstring), "    ").lstrip()
    head, _, rest = docstring.partition("Args:")
    options, separator, rest = rest.partition("\n\n")
    # The first line describes `batch`, which callers do not pass.
    _, _, options = options.lstrip("\n").partition("\n")
    return head, "\n" + options if options else "", separator + rest
