import json

from caltrain_tf.training import logs
from caltrain_tf.training.logs import MetricsLog


def test_rows_are_read_again_and_rewound(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "train/loss": step / 3} for step in (1, 2, 3)]
    log = MetricsLog(str(path))
    for row in rows:
        log.append(row)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    again, in_memory = MetricsLog(str(path)), MetricsLog()
    assert again.rows == rows and in_memory.rows == []
    again.rewind(1)
    again.append({"step": 2})
    assert MetricsLog(str(path)).rows == [rows[0], {"step": 2}]


def test_the_lowest_value_and_what_is_not_finite(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(str(path))
    log.append({"step": 1, "test/ece": float("nan")})
    assert json.loads(path.read_text()) == {"step": 1, "test/ece": None}
    assert log.lowest("test/ece") == float("inf")
    log.append({"step": 2, "test/ece": 0.5})
    assert MetricsLog(str(path)).lowest("test/ece") == 0.5


def test_a_bar_over_the_steps(capsys):
    row = {"epoch": 2, "step": 8, "train/loss": 0.5, "train/l2_loss": 0.1}
    row["test/ece"] = 0.25
    with logs.progress_bar(100, first_step=20) as bar:
        bar.update(40)
        logs.show_epoch(bar, row, 3)
    shown = capsys.readouterr().err
    assert "60/100" in shown and "step/s" in shown
    assert "epoch 2/3\n  train: loss 0.5000\n  test: ece 0.2500\n" in shown
    with logs.progress_bar(100, shown=False) as bar:
        logs.show_epoch(bar, row, 3)
    assert capsys.readouterr().err == ""
