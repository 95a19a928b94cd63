"""Trains, evaluates and calibrates one run, and writes its files."""

import io
import json
import tempfile

import numpy as np

from caltrain_tf import callbacks, checks, evaluation, figures, files, training
from caltrain_tf.experiments import build
from caltrain_tf.experiments.config import check_batch_size, check_numbers

SPLITS = ("calibration", "test")
# Allowed values of `config.best`: measures of the calibration split.
BEST = ("ts_nll",)


def train(config, output_dir, data_dir=None, strategy=None, profile_steps=None):
    """Runs or resumes an experiment, and returns its results.

    It writes the files of a run to `output_dir`, a local folder or a folder in
    a bucket: `config.json`, `checkpoints/`, `metrics.jsonl`, `summaries/`,
    `predictions/`, `reliability.png`, `model.keras`, `calibrated.keras` and
    `results.json`. If `results.json` already exists, it returns at once.

    With `config.best = "ts_nll"`, every epoch is evaluated, and all results are
    those of the one with the lowest NLL on the calibration split after scaling;
    `results.json` has it as `best_epoch`. The final temperatures are fitted to
    the same split, on which results would be slightly optimistic; results on
    the test split are not affected.

    Args:
        config: The configuration, as in `configs/`.
        output_dir: The run's folder.
        data_dir: The folder of TensorFlow Datasets.
        strategy: From `training.get_strategy`; its default if None.
        profile_steps: The steps to profile, as in `Trainer.fit`.

    Returns:
        The contents of `results.json`.
    """
    check_numbers(config)
    # Missing in runs saved before this option existed.
    best = config.get("best")
    if best is not None:
        checks.choice("--config.best", best, BEST)
    results = read_results(output_dir)
    if results is not None:
        training.check_config(output_dir, config.to_dict())
        return results
    strategy = strategy or training.get_strategy()
    check_batch_size(config, strategy)
    data = build.build_data(config, data_dir)
    parts = (data,)
    if config.interleaved.enabled:
        parts = data.interleaved(config.interleaved.held_out_fraction)
    steps = [part.steps_per_epoch(config.batch_size) for part in parts]
    trainer = build.build_trainer(config, strategy, data, sum(steps))
    chief = training.is_chief(strategy)
    with training.RunFolder(output_dir, config.to_dict(), chief) as run:
        rows = _fit(trainer, config, data, parts, steps, run, profile_steps)
        taken = rows[-1]
        if best is not None:
            step = trainer.restore_best(run)
            taken = next(row for row in rows if row["step"] == step)
        predictions = {
            split: trainer.predict(
                data.eval_input(split, config.batch_size), with_labels=True
            )
            for split in SPLITS
        }
        calibrators = evaluation.fit_calibrators(*predictions["calibration"])
        results = evaluation.final_results(predictions["test"], calibrators)
        results["train_ece"] = taken["train/ece"]
        results["train_accuracy"] = taken["train/accuracy"]
        if best is not None:
            results["best_epoch"] = taken["epoch"]
        training.warn_if_memorised(results["train_ece"], results["ece"])
        if chief:
            _write_predictions(run, predictions)
            _write_figure(run, predictions, calibrators, taken["step"])
            _write_models(run, trainer, config, data, calibrators)
            # Written last, because it marks the run as finished.
            text = json.dumps(results, indent=2, sort_keys=True)
            files.write_text(run.file("results.json"), text + "\n")
    return results


def read_results(folder):
    """Returns the contents of a run's `results.json`, or None if missing."""
    path = files.as_path(folder) / "results.json"
    return json.loads(path.read_text()) if path.exists() else None


def epochs_done(folder):
    """Returns the number of epochs in a run's `metrics.jsonl`."""
    path = files.as_path(folder) / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def save_figure(figure, path):
    """Writes a matplotlib figure as PNG, atomically, and returns the bytes."""
    png = io.BytesIO()
    figure.savefig(png, format="png")
    files.write_bytes(path, png.getvalue())
    return png.getvalue()


def _fit(trainer, config, data, parts, steps, run, profile_steps):
    def of_host(part):
        return part.train_input(config.batch_size, seed=config.seed)

    interleaved = {}
    if config.interleaved.enabled:
        interleaved = {
            "held_out": of_host(parts[1]),
            "held_out_steps": steps[1],
            "calibration_loss": build.build_loss(config, ["secondary"]),
        }
    best = {}
    if config.get("best") is not None:
        best = {
            "measures": {"calibration": callbacks.temperature_scaled_nll},
            "best": f"calibration/{config.best}",
        }
    return trainer.fit(
        of_host(parts[0]),
        config.epochs,
        dataset_steps=steps[0],
        evaluations={
            split: data.eval_input(split, config.batch_size) for split in SPLITS
        },
        # The best epoch may be any.
        evaluate_every=1 if best else config.evaluate_every,
        run=run,
        keep=config.keep_checkpoints,
        # Missing in runs saved before this option existed.
        checkpoint_every_steps=config.get("checkpoint_every_steps"),
        profile_steps=profile_steps,
        **interleaved,
        **best,
    )


def _write_predictions(run, predictions):
    for split, (logits, labels) in predictions.items():
        path = run.file("predictions", f"{split}.npz")
        evaluation.save_predictions(path, logits, labels)


def _write_figure(run, predictions, calibrators, step):
    """Draws the reliability of the test split before and after scaling."""
    logits, labels = predictions["test"]
    panels = {"no scaling": (logits, labels)}
    for name, calibrator in calibrators.items():
        title = name.upper().replace("_", "-")
        panels[title] = (np.asarray(calibrator.transform(logits)), labels)
    figure = figures.reliability_diagrams(panels, from_logits=True)
    png = save_figure(figure, run.file("reliability.png"))
    summaries = training.Summaries(run.file("summaries"))
    summaries.image("reliability", png, step)
    summaries.close()


def _write_models(run, trainer, config, data, calibrators):
    """Writes the network, without and with TS-SB-ECE at its end."""
    # A new copy, because the trainer's may be distributed over many devices.
    model = build.build_model(config, data)
    model.set_weights(trainer.model.get_weights())
    calibrated = calibrators["ts_sb_ece"].append_to(model)
    with tempfile.TemporaryDirectory() as folder:
        for name, network in (("model", model), ("calibrated", calibrated)):
            local = files.as_path(folder) / f"{name}.keras"
            network.save(local)
            files.write_bytes(run.file(local.name), local.read_bytes())
