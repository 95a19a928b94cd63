"""The Optuna study of a tuning."""

import numpy as np

from caltrain_tf.experiments.storage import import_optuna
from caltrain_tf.experiments.work_queue import WorkQueue

VALUES = ("ece", "accuracy")
_FINGERPRINT = "fingerprint"


def open_queue(storage, name, space, fingerprint, **options):
    """Opens the study that the workers of a tuning share.

    Args:
        storage: Of `open_storage`.
        name: The study's name.
        space: Of `search_space`.
        fingerprint: What all its trials share, flat and of JSON types. A study
            of another one is refused.
        **options: Of `WorkQueue`.

    Returns:
        `(study, queue)`.
    """
    optuna = import_optuna()
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        directions=["minimize", "maximize"],
        load_if_exists=True,
        # For what we do not ask of it: proposals are made in `propose`.
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    if _FINGERPRINT not in study.user_attrs:
        study.set_user_attr(_FINGERPRINT, fingerprint)
    there = study.user_attrs[_FINGERPRINT]
    differing = [
        f"{key}={there.get(key, 'absent')} there, "
        f"{fingerprint.get(key, 'absent')} here"
        for key in sorted({*there, *fingerprint})
        if there.get(key, "absent") != fingerprint.get(key, "absent")
    ]
    if differing:
        raise ValueError(
            f"The study {name!r} is of another configuration: "
            f"{'; '.join(differing)}. Take another --output_dir or "
            "--study_name, or the same configuration to go on."
        )
    return study, WorkQueue(study, storage, VALUES, _ranges(space), **options)


def propose(study, space, seed):
    """Returns parameters that look good after the trials so far.

    Between the smallest and the largest of the values to try, on a logarithmic
    scale but for thresholds and where 0 is one of them; words are chosen from.
    By a tree-structured Parzen estimator over both objectives, ECE and
    accuracy; at random for the first ten trials.

    Args:
        study: The study.
        space: Of `search_space`.
        seed: Whole numbers; the same after the same trials give the same
            parameters.

    Returns:
        Values by name, of four significant digits.
    """
    optuna = import_optuna()
    (seed,) = np.random.SeedSequence(seed).generate_state(1)
    sampler = optuna.samplers.TPESampler(seed=int(seed))
    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    params = {}
    for parameter in space:
        name, values = parameter.name, parameter.values
        if len(set(values)) == 1:
            params[name] = values[0]
            continue
        log = parameter.is_number and parameter.is_log
        value = sampler.sample_independent(
            study, trial, name, _distribution(values, log)
        )
        if isinstance(value, float):
            rounded = float(f"{value:.4g}")
            value = min(max(rounded, min(values)), max(values))
        params[name] = value
    return params


def _ranges(space):
    ranges = {}
    for parameter in space:
        values = list(parameter.values)
        if parameter.default is not None and parameter.default not in values:
            values.append(parameter.default)
        # Not logarithmic: Optuna refuses to change it when 0 is tried later.
        ranges[parameter.name] = _distribution(values, log=False)
    return ranges


def _distribution(values, log):
    distributions = import_optuna().distributions
    if any(isinstance(value, bool | str) for value in values):
        return distributions.CategoricalDistribution(values)
    whole = all(isinstance(value, int) for value in values)
    kind = "IntDistribution" if whole else "FloatDistribution"
    return getattr(distributions, kind)(min(values), max(values), log=log)
