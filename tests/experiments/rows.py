"""Rows as the statistics over runs read them."""


def run(objective, seed, setting="s", **metrics):
    """A result row."""
    name = objective.removesuffix("-interleaved")
    primary, _, secondary = name.partition("+")
    return {
        "setting": setting,
        "objective": objective,
        "primary": primary,
        "secondary": secondary,
        "interleaved": name != objective,
        "seed": seed,
        **metrics,
    }
