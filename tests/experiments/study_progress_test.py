import io
import os

from caltrain_tf.experiments.matrix import Setting
from caltrain_tf.experiments.study_progress import StudyProgress


def setting(folder, seed):
    config = {"seed": seed, "epochs": 4}
    return Setting("nll", seed, config, str(folder / "nll" / f"seed{seed}"))


def test_the_time_left_is_that_of_the_epochs_then_of_the_runs(tmp_path):
    class Running:
        seconds = 10.0

    stream = io.StringIO()
    progress = StudyProgress(4, stream, seconds_between_lines=0.0)
    runs = [setting(tmp_path, seed) for seed in (0, 1)]
    for run in runs:
        os.makedirs(run.folder)
        progress.start(run)
    progress.show({runs[0]: Running}, 2)
    assert "1/4 finished  0 failed  1 running  2 left" in stream.getvalue()
    assert "? left" in stream.getvalue()
    # One of four epochs in 10 s: 30 s of this run and 2 x 40 s of others.
    (tmp_path / "nll" / "seed0" / "metrics.jsonl").write_text("{}\n")
    progress.show({runs[0]: Running}, 2)
    assert "1m50s left" in stream.getvalue().splitlines()[-1]
    # A whole one took 20 s: 3/4 and two more, two at a time.
    progress.end(runs[1], 20.0)
    progress.show({runs[0]: Running}, 2, elsewhere=1)
    line = stream.getvalue().splitlines()[-1]
    assert "0/4 finished" in line and "38s left" in line
    progress.show({runs[0]: Running}, 1, failed=1)
    assert "1/4 finished  1 failed" in stream.getvalue().splitlines()[-1]


def test_a_terminal_has_one_line_that_is_redrawn(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress = StudyProgress(4, stream)
    progress.show({}, 3)
    progress.show({}, 2)
    progress.note("nll seed 0: accuracy 50%")
    progress.show({}, 1)
    lines = stream.getvalue().split("\r")
    # What follows at once is not shown, but for a line that stays.
    assert lines == [
        "",
        "1/4 finished  0 failed  0 run",
        " " * 29,
        "nll seed 0: accuracy 50%\n",
        "3/4 finished  0 failed  0 run",
    ]
