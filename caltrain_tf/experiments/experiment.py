"""The files of a run: what is read before training and written after it."""

import json
import shlex
import tempfile

import tensorflow as tf

from caltrain_tf import figures, files, training
from caltrain_tf.experiments import figures as study_figures
from caltrain_tf.experiments import measures, prediction_files
from caltrain_tf.experiments.config import objective
from caltrain_tf.training import run_folder


def finished(folder, config):
    """Returns the results of a run if it is finished, or None."""
    results = read_results(folder)
    if (files.as_path(folder) / "config.json").exists():
        run_folder.check_config(folder, config.to_dict())
    elif results is not None:
        raise ValueError(f"{folder} has results.json, but no config.json")
    return results


def read_results(folder):
    """Returns the contents of a run's `results.json`, or None if missing."""
    path = files.as_path(folder) / "results.json"
    return files.read_json(path) if path.exists() else None


def open_folder(folder, config, strategy, wait=False):
    """Returns the `RunFolder` of a run, maybe after another process."""
    chief = training.is_chief(strategy)
    if wait and chief:  # The others would wait for the chief itself.
        run_folder.wait_until_free(folder)
    return run_folder.RunFolder(folder, config.to_dict(), chief)


def predict(trainer, splits):
    """Returns `(logits, labels)` of every split."""
    return {k: trainer.predict(v, with_labels=True) for k, v in splits.items()}


def chosen_epoch(trainer, config, run, history):
    """Returns the row of the last epoch, or restores the best one."""
    if not history:
        return {"epoch": 0, "step": 0}  # Nothing was trained.
    if config.best is None:
        return history[-1]
    step = trainer.restore_best(run)
    return next(row for row in history if row["step"] == step)


def final_results(config, epoch, predictions, calibrators):
    """Returns the contents of `results.json`, and warns of a memorised set."""
    train, test = predictions.get("train"), predictions["test"]
    results = measures.final_results(test, calibrators, train)
    if train is not None:
        training.warn_if_memorised(results["train_ece_l1"], results["ece_l1"])
    if config.best is not None:
        results["best_epoch"] = epoch["epoch"]
    return results


def write(run, epoch, predictions, calibrators, results, model):
    """Writes predictions, a reliability diagram, networks and results."""
    for split in ("calibration", "test"):
        path = run.file("predictions", f"{split}.npz")
        prediction_files.save(path, *predictions[split])
    logits, labels = predictions["test"]
    panels = {"no scaling": (logits, labels)}
    for name, calibrator in calibrators.items():
        title = study_figures.calibrator_label(name)
        panels[title] = calibrator.transform(logits), labels
    figure = figures.reliability_diagrams(panels, from_logits=True)
    png = study_figures.save(figure, run.file("reliability.png"))
    with tf.summary.create_file_writer(run.file("summaries")).as_default():
        image = tf.io.decode_png(png)[tf.newaxis]
        tf.summary.image("reliability", image, epoch["step"])
    calibrated = calibrators["ts_sb_ece"].append_to(model)
    with tempfile.TemporaryDirectory() as folder:
        for name, network in (("model", model), ("calibrated", calibrated)):
            local = files.as_path(folder) / f"{name}.keras"
            network.save(local)
            files.write_bytes(run.file(local.name), local.read_bytes())
    # Written last, because it marks the run as finished.
    text = json.dumps(results, indent=2, sort_keys=True)
    files.write_text(run.file("results.json"), text + "\n")


def print_results(config, folder, results):
    """Prints the results of a run and what to do with it next."""
    print(f"\n{objective(config)} on {config.data.name}, test split")
    print(measures.results_table(results))
    folder = shlex.quote(folder)
    print(
        f"\nEverything is in {folder}. Under shift, and as a page:\n"
        f"  python baselines/shift_benchmark.py --run_dir={folder}\n"
        f"  python baselines/report.py {folder} --output=report.html"
    )
