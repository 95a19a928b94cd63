"""Trains, evaluates and calibrates: the main job."""

import json

import numpy as np

from caltrain_tf import evaluation
from caltrain_tf import figures
from caltrain_tf import training
from caltrain_tf.experiments import build
from caltrain_tf.experiments.figure_file import save_figure


def train(config, output_dir, data_dir=None, strategy=None):
    """Runs an experiment, or goes on with it, and says what it got.

    Writes the files of a run to `output_dir`: `config.json`, `checkpoints/`,
    `metrics.jsonl`, `summaries/`, `predictions/`, `results.json` and
    `reliability.png`.

    Args:
        config: The configuration, as of `configs/`.
        output_dir: The run's folder.
        data_dir: The folder of TensorFlow Datasets.
        strategy: Of `training.get_strategy`; its default if None.

    Returns:
        What `results.json` holds.
    """
    build.check_numbers(config)
    strategy = strategy or training.get_strategy()
    data = build.build_data(config, data_dir)
    parts = _training_parts(config, data)
    steps_per_epoch = sum(
        part.steps_per_epoch(config.batch_size) for part in parts
    )
    trainer = build.build_trainer(config, strategy, data, steps_per_epoch)
    chief = training.is_chief(strategy)
    with training.RunFolder(output_dir, config.to_dict(), chief) as run:
        rows = _fit(trainer, config, data, parts, run)
        predictions = {
            split: trainer.predict(
                data.eval_batches(split, config.batch_size), with_labels=True
            )
            for split in ("calibration", "test")
        }
        results = _results(predictions, rows)
        if chief:
            _write(run, predictions, results, rows[-1]["step"])
    return results


def _training_parts(config, data):
    if not config.interleaved.enabled:
        return (data,)
    return data.interleaved(config.interleaved.held_out_fraction)


def _fit(trainer, config, data, parts, run):
    def batches(part):
        return lambda epoch: part.train_batches(
            config.batch_size, epoch=epoch, seed=config.seed
        )

    interleaved = {}
    if config.interleaved.enabled:
        interleaved = {
            "held_out": batches(parts[1]),
            "calibration_loss": build.build_loss(config, ["secondary"]),
        }
    return trainer.fit(
        batches(parts[0]),
        config.epochs,
        evaluations={
            split: data.eval_batches(split, config.batch_size)
            for split in ("calibration", "test")
        },
        evaluate_every=config.evaluate_every,
        run=run,
        keep=config.keep_checkpoints,
        **interleaved,
    )


def _results(predictions, rows):
    calibrators = evaluation.fit_calibrators(*predictions["calibration"])
    results = evaluation.final_results(predictions["test"], calibrators)
    results["train_ece"] = rows[-1]["train/ece"]
    results["train_accuracy"] = rows[-1]["train/accuracy"]
    training.warn_if_memorised(results["train_ece"], results["ece"])
    return results


def _write(run, predictions, results, step):
    for split, (logits, labels) in predictions.items():
        path = run.file("predictions", f"{split}.npz")
        evaluation.save_predictions(path, logits, labels)
    figure = reliability_figure(predictions)
    png = save_figure(figure, run.file("reliability.png"))
    summaries = training.Summaries(run.file("summaries"))
    summaries.image("reliability", png, step)
    summaries.close()
    # Last: where it is, the run is finished.
    text = json.dumps(results, indent=2, sort_keys=True)
    training.write_text(run.file("results.json"), text + "\n")


def reliability_figure(predictions):
    """Reliability of the test split before and after scaling."""
    calibrators = evaluation.fit_calibrators(*predictions["calibration"])
    logits, labels = predictions["test"]
    panels = {"no scaling": (logits, labels)}
    for name, calibrator in calibrators.items():
        title = name.upper().replace("_", "-")
        panels[title] = (np.asarray(calibrator.transform(logits)), labels)
    return figures.reliability_diagrams(panels, from_logits=True)
