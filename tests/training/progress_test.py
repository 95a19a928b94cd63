import io

from caltrain_tf.training import Progress


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_in_a_file():
    stream = io.StringIO()
    progress = Progress(100, 20, batch_size=8, stream=stream)
    progress.update(40, 1, 5, {"loss": 1.25, "primary_loss": 1.0})
    progress.update(41, 1, 5, {"loss": 9.0})
    progress.note("epoch 1/5 done")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "epoch 1/5  step 40/100  loss 1.2500  primary_loss 1.0000  "
    )
    assert "examples/s" in lines[0]
    assert lines[0].endswith(" left")
    assert lines[1] == "epoch 1/5 done"


def test_one_line_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = _Terminal()
    progress = Progress(100, stream=stream)
    progress.seconds_between = 0
    progress.update(1, 1, 5, {"loss": 1.25})
    progress.update(2, 1, 5, {"loss": 1.0})
    text = stream.getvalue()
    assert "\n" not in text
    _, first, second = text.split("\r")
    assert len(first) == len(second) == 29
    assert second.startswith("epoch 1/5  step 2/100")
    progress.note("done")
    assert stream.getvalue().endswith("\rdone\n")


def test_steps_where_batches_differ():
    stream = io.StringIO()
    Progress(10, stream=stream).update(0, 1, 1, {})
    assert "0 steps/s  ? left" in stream.getvalue()
