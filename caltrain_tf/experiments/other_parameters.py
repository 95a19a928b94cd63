"""Settings to tune that are not among the paper's."""

import difflib


def other_values(config, texts):
    """Reads which settings to try, and their values.

    Args:
        config: The configuration, as of `configs/`.
        texts: Of the form `path=value,value`, where the path is one of the
            configuration.

    Returns:
        Tuples of values by path, of the types that the configuration has.

    Example:
        >>> import ml_collections
        >>> config = ml_collections.ConfigDict(
        ...     {"batch_size": 64, "loss": {"binning": "label"}}
        ... )
        >>> other_values(config, ["batch_size=16,256", "loss.binning=bin"])
        {'batch_size': (16, 256), 'loss.binning': ('bin',)}
    """
    types = _types(config)
    found = {}
    for text in texts:
        path, _, values = text.partition("=")
        if path not in types:
            near = difflib.get_close_matches(path, types, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                "`also` must be one number or word of the "
                f"configuration.{hint} Received: {text!r}"
            )
        try:
            found[path] = tuple(
                dict.fromkeys(map(_READERS[types[path]], values.split(",")))
            )
        except ValueError as error:
            raise ValueError(
                f"The values of {path!r} must be of type "
                f"{types[path].__name__}, separated by commas. "
                f"Received: {text!r}"
            ) from error
    return found


def _read_bool(text):
    if text not in ("True", "False"):
        raise ValueError(text)
    return text == "True"


def _read_word(text):
    if not text:
        raise ValueError(text)
    return text


_READERS = {bool: _read_bool, int: int, float: float, str: _read_word}


def _types(config, prefix=""):
    types = {}
    for key in config:
        path = prefix + key
        if hasattr(config[key], "keys"):
            types |= _types(config[key], f"{path}.")
        elif config.get_type(key) in _READERS:
            types[path] = config.get_type(key)
    return types
