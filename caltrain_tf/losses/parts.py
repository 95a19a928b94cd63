"""The value of a loss that is a part of another one, whatever kind it is."""

import inspect

import keras
from keras import ops

from caltrain_tf import inputs
from caltrain_tf.losses import base


def value(loss, batch, is_group=False):
    """Returns the scalar of any kind of loss for a `Batch`.

    Args:
        loss: A loss of this package, another `keras.losses.Loss`, or a function
            `(y_true, y_pred)`.
        batch: The `Batch`.
        is_group: Whether the weights select some of the examples. Losses that
            do not see the weights must then return a value for each example.

    Returns:
        The loss's own scalar, or the weighted mean of its values.
    """
    if isinstance(loss, base.Loss) and not base.has_own_call(loss):
        values = loss.of_batch(batch)
        return base.mean(values, batch) if len(values.shape) else values
    if isinstance(loss, keras.losses.Loss):
        values = loss.call(*batch.given)
    else:
        options = {"from_logits": batch.from_logits}
        values = loss(*batch.given, **accepted(loss, options))
    values = ops.cast(values, "float32")
    if len(values.shape) == 0:
        if is_group:
            raise ValueError(
                "`loss` must return a value for each example. Received: "
                f"loss={loss!r}, which returned a scalar"
            )
        return inputs.nan_where_invalid(values, batch)
    if len(values.shape) > 1:
        values = ops.mean(values, axis=tuple(range(1, len(values.shape))))
    return base.mean(inputs.nan_where_invalid(values, batch), batch)


def check_agreement(role, part, shared, whole):
    """Raises if a part of a loss has other options than the whole."""
    for option, expected in shared.items():
        theirs = getattr(part, option, expected)
        if theirs != expected and (
            option == "from_logits" or isinstance(part, base.Loss)
        ):
            raise ValueError(
                f"`{role}` and the {whole} loss must agree on `{option}`. "
                f"Received: {role}.{option}={theirs}, {option}={expected}"
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
        if name in parameters or name not in base.SHARED
    }
