import json

from caltrain_tf.training import MetricsLog


def test_round_trip(tmp_path):
    path = str(tmp_path / "metrics.jsonl")
    rows = [{"step": 1, "train/loss": 0.1}, {"step": 2, "train/loss": 1 / 3}]
    log = MetricsLog(path)
    for row in rows:
        log.append(row)
    assert MetricsLog(path).rows == rows
    with open(path) as file:
        assert [json.loads(line) for line in file] == rows


def test_rewinding_forgets_later_and_torn_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4, "tr')
    log = MetricsLog(str(path))
    log.rewind(2)
    log.append({"step": 3})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


def test_what_is_not_finite_is_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsLog(str(path)).append({"step": 1, "test/ece": float("nan")})
    assert json.loads(path.read_text()) == {"step": 1, "test/ece": None}


def test_in_memory():
    log = MetricsLog()
    log.append({"step": 1})
    log.rewind(0)
    assert log.rows == []
