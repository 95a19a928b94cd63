"""Which runs a study is made of: objectives x seeds."""

import copy
import dataclasses
import difflib
import os

from caltrain_tf import checks
from caltrain_tf import losses
from caltrain_tf.experiments.overrides import apply_overrides

NONE = "none"
# What the paper crosses; `losses.PRIMARY` and `losses.SECONDARY` have more.
PRIMARIES = ("nll", "focal", "mse")
SECONDARIES = (NONE, "mmce", "avuc", "avuc_gs", "sb_ece", "s_avuc")
INTERLEAVED = "-interleaved"


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """One run of a study.

    Attributes:
        objective: Its training objective, as `run_name` calls it.
        seed: Its seed.
        config: Its whole configuration, of JSON types.
        folder: Where it is.
    """

    objective: str
    seed: int
    config: dict
    folder: str

    @property
    def name(self):
        """What it is called on the terminal: `focal+sb_ece seed 0`."""
        return f"{self.objective} seed {self.seed}"


def cross(primaries=PRIMARIES, secondaries=SECONDARIES):
    """Returns the names of all pairs of a primary and a secondary loss.

    Args:
        primaries: Names of primary losses.
        secondaries: Names of secondary losses; `"none"` is the primary alone.

    Example:
        >>> cross(["nll", "focal"], ["none", "sb_ece"])
        ['nll', 'nll+sb_ece', 'focal', 'focal+sb_ece']
    """
    for name in primaries:
        checks.check_choice("primaries", name, list(losses.PRIMARY))
    for name in secondaries:
        checks.check_choice("secondaries", name, [NONE, *losses.SECONDARY])
    return [
        primary if secondary == NONE else f"{primary}+{secondary}"
        for primary in primaries
        for secondary in secondaries
    ]


def run_name(config):
    """The objective of a configuration: `focal+sb_ece`.

    Args:
        config: The configuration.
    """
    name = config.loss.primary
    if config.loss.secondary is not None:
        name += f"+{config.loss.secondary}"
    return name + (INTERLEAVED if config.interleaved.enabled else "")


def parse_objective(name):
    """Takes an objective's name apart.

    Args:
        name: As `run_name` makes it.

    Returns:
        `(primary, secondary, interleaved)`; the secondary loss may be None.

    Example:
        >>> parse_objective("nll+s_avuc-interleaved")
        ('nll', 's_avuc', True)
    """
    pairs = [
        f"{primary}+{secondary}"
        for primary in losses.PRIMARY
        for secondary in losses.SECONDARY
    ]
    known = [*losses.PRIMARY, *pairs, *(pair + INTERLEAVED for pair in pairs)]
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
        raise ValueError(
            "`objectives` must be <primary>, <primary>+<secondary> or "
            f"<primary>+<secondary>{INTERLEAVED}, with a primary loss of "
            f"{', '.join(losses.PRIMARY)} and a secondary loss of "
            f"{', '.join(losses.SECONDARY)}. Did you mean {near[0]!r}? "
            f"Received: {name!r}"
        )
    primary, _, secondary = name.removesuffix(INTERLEAVED).partition("+")
    return primary, secondary or None, name.endswith(INTERLEAVED)


def settings(config, objectives, seeds, output_dir, tuned=None):
    """Returns the runs of a study, seed after seed.

    All objectives of the first seed come first: a study that is stopped early
    still compares them all.

    Args:
        config: The configuration that the runs share, as of `configs/`.
        objectives: Names of objectives.
        seeds: Integers.
        output_dir: The study's folder.
        tuned: Settings of single objectives: a dictionary from an objective to
            a dictionary from dotted keys to values. Objectives of it that are
            not run do not matter, as long as there are such.

    Returns:
        A list of `Setting`s.
    """
    tuned = {} if tuned is None else tuned
    for name in tuned:
        parse_objective(name)
    configs = {
        name: _objective_config(config, name, tuned.get(name, {}))
        for name in objectives
    }
    for what, values in (("objectives", objectives), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"`{what}` must be at least one, and each only once. "
                f"Received: {what}={list(values)}"
            )
    for seed in seeds:
        checks.check_count("seed", seed, low=0)
    return [
        Setting(
            name,
            seed,
            {**configs[name], "seed": seed},
            os.path.join(output_dir, name, f"seed{seed}"),
        )
        for seed in seeds
        for name in objectives
    ]


def _objective_config(config, name, overrides):
    config = copy.deepcopy(config)
    primary, secondary, interleaved = parse_objective(name)
    config.loss.primary = primary
    config.loss.secondary = secondary
    config.interleaved.enabled = interleaved
    apply_overrides(config, overrides, name)
    if run_name(config) != name or "seed" in overrides:
        raise ValueError(
            "Settings of an objective must leave its losses and the seed as "
            f"they are. Received: {overrides} for {name!r}"
        )
    return config.to_dict()
