"""Tuning: the paper's procedure, and a joint search."""

import dataclasses
import os
import statistics

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.evaluation import best_within_accuracy
from caltrain_tf.experiments.job_outcome import Outcome
from caltrain_tf.experiments.matrix import run_name
from caltrain_tf.experiments.search_space import Parameter
from caltrain_tf.experiments.search_space import fingerprint
from caltrain_tf.experiments.search_space import search_space
from caltrain_tf.experiments.search_space import trial_name
from caltrain_tf.experiments.search_space import with_params
from caltrain_tf.experiments.storage import open_storage
from caltrain_tf.experiments.tuning_study import open_queue
from caltrain_tf.experiments.tuning_study import propose
from caltrain_tf.training.logs import format_time

STRATEGIES = ("sequential", "joint")
_JOINT_TRIALS = 20
# All of them known: there is nothing new between the extremes.
_MOST_PROPOSALS = 100


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What a tuning found.

    Attributes:
        space: The parameters, a list of `Parameter`.
        outcomes: An `Outcome` for each trial, by its name, in their order.
        best: The name of the best one.
    """

    space: list[Parameter]
    outcomes: dict[str, Outcome]
    best: str


def tune(
    config,
    output_dir,
    run,
    *,
    strategy="sequential",
    others=(),
    trials=None,
    storage=None,
    study_name=None,
    say=print,
    **options,
):
    """Tunes an objective, alone or together with other workers.

    `"sequential"` is the paper's: one parameter after the other (see
    `search_space`), each tried at the best of all trials so far. `"joint"`
    tries all at once (see `propose`). The best trial has the lowest ECE among
    those that give up less than 1% accuracy against the most accurate one,
    both on the calibration split.

    Args:
        config: The configuration, as of `configs/`.
        output_dir: The folder of the study; trials are runs in `trials/`.
        run: Called with a configuration and a folder; returns a dictionary with
            `accuracy` and `ece`. See `run_trial`.
        strategy: `"sequential"` or `"joint"`.
        others: Settings to tune that `config.search` does not name; see
            `search_space`.
        trials: The most trials in total; all values of the search by default,
            20 of a joint search.
        storage: See `open_storage`; workers of one storage share the trials.
        study_name: Of the study in the storage; by default it names the data,
            the objective and the strategy.
        say: Called with lines for the user.
        **options: Of `WorkQueue`.

    Returns:
        A `Tuning`, the same for all workers.
    """
    check_choice("strategy", strategy, STRATEGIES)
    space = search_space(config, others)
    limit = _default_trials(space, strategy) if trials is None else trials
    check_count("trials", limit)
    name = f"{config.data.name} {run_name(config)} {strategy}"
    study, queue = open_queue(
        open_storage(storage, output_dir),
        study_name or name,
        space,
        {**fingerprint(config, space), "strategy": strategy},
        say=say,
        **options,
    )
    total = limit
    if strategy == "sequential":
        total = min(limit, _default_trials(space, strategy))

    def work(trial, params):
        say(_progress(queue, params, total))
        folder = os.path.join(output_dir, "trials", trial)
        result = run(with_params(config, space, params), folder)
        say(f"  accuracy {result['accuracy']:.2%}, ECE {result['ece']:.2%}")
        return result

    if strategy == "joint":
        outcomes = _joint(study, queue, space, limit, config.seed, work)
    else:
        outcomes = _sequential(queue, space, limit, work)
    return Tuning(space, outcomes, best_trial(outcomes))


def best_trial(outcomes):
    """Returns the name of the best of the trials that did not fail.

    Args:
        outcomes: An `Outcome` for each trial, by name.
    """
    rows = [
        {"name": name, **outcome.result}
        for name, outcome in outcomes.items()
        if outcome.result is not None
    ]
    if not rows:
        reasons = "; ".join(
            f"{name}: {outcome.reason}" for name, outcome in outcomes.items()
        )
        raise RuntimeError(f"All trials failed. {reasons}")
    return best_within_accuracy(rows)["name"]


def _sequential(queue, space, limit, work):
    params = {
        parameter.name: parameter.values[0]
        if parameter.default is None
        # Of one type: 1 and 1.0 are two names of trials.
        else type(parameter.values[0])(parameter.default)
        for parameter in space
    }
    tried, outcomes = {}, {}
    for parameter in space:
        jobs = {}
        for value in parameter.values:
            job = {**params, parameter.name: value}
            # What is known already costs nothing.
            if trial_name(job) not in outcomes:
                jobs[trial_name(job)] = job
        jobs = dict(list(jobs.items())[: limit - len(outcomes)])
        tried |= jobs
        outcomes |= queue.run(jobs, work)
        params = tried[best_trial(outcomes)]
    return outcomes


def _joint(study, queue, space, limit, seed, work):
    proposals = 0
    while len(jobs := queue.jobs()) < limit and proposals < _MOST_PROPOSALS:
        if queue.work_once(jobs, work):
            proposals = 0
            continue
        # The seed is of the number of trials, not of this process: who goes on
        # with a study proposes what would have been proposed.
        params = propose(study, space, (seed, len(jobs), proposals))
        proposals += 1
        if trial_name(params) not in jobs:
            queue.add(trial_name(params), params)
    return queue.run(dict(list(queue.jobs().items())[:limit]), work)


def _default_trials(space, strategy):
    if strategy == "joint":
        return _JOINT_TRIALS
    first, *others = space
    # A later parameter's own value was tried with those before it.
    return len(first.values) + sum(
        len(set(parameter.values) - {parameter.default}) for parameter in others
    )


def _progress(queue, params, total):
    outcomes, running = queue.outcomes(), queue.running()
    text = f"trial {len(outcomes) + len(running)} of {total}: " + ", ".join(
        f"{name}={value}" for name, value in params.items()
    )
    done = [outcome.seconds for outcome in outcomes.values()]
    if done:
        left = statistics.mean(done) * (total - len(outcomes))
        text += f" (about {format_time(left / max(len(running), 1))} left)"
    return text
