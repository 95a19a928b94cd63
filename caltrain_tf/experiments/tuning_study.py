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
    scale but for thresholds and where 0 is one of them. By a tree-structured
    Parzen estimator over both objectives, ECE and accuracy; at random for the
    first ten trials.

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
        low, high = min(parameter.values), max(parameter.values)
        value = low
        if low < high:
            distribution = optuna.distributions.FloatDistribution(
                low, high, log=parameter.is_log
            )
            value = float(
                sampler.sample_independent(
                    study, trial, parameter.name, distribution
                )
            )
        params[parameter.name] = min(max(float(f"{value:.4g}"), low), high)
    return params


def _ranges(space):
    # Not logarithmic: Optuna refuses to change it when 0 is tried later.
    optuna = import_optuna()
    ranges = {}
    for parameter in space:
        values = list(parameter.values)
        if parameter.default is not None:
            values.append(parameter.default)
        ranges[parameter.name] = optuna.distributions.FloatDistribution(
            min(values), max(values)
        )
    return ranges
