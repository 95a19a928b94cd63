import math

import pytest

import caltrain_tf as ct
from caltrain_tf.report.rows import RESULTS
from caltrain_tf.report.rows import rows_files

RUN = {
    "setting": "a, b",
    "objective": "nll",
    "primary": "nll",
    "secondary": "",
    "interleaved": False,
    "seed": 0,
    "hyperparameters": 'l2 "0.1"',
    "accuracy": 0.1 + 0.2,
    "ece": 1e-17,
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def same(a, b):
    return (
        all(math.isnan(v) for v in (a, b)) if a != a or b != b else a == b
    ) and type(a) is type(b)


def test_rows_come_back_to_the_last_bit(rows, tmp_path):
    folder = write(tmp_path, rows_files(rows))
    again = ct.report.read_rows(folder)
    assert len(again.results) == 4
    for part, part_again in zip(rows, again, strict=True):
        assert len(part) == len(part_again)
        for row, row_again in zip(part, part_again, strict=True):
            assert list(row) == list(row_again)
            assert all(same(row[key], row_again[key]) for key in row)
    assert rows_files(again) == rows_files(rows)


def test_a_number_that_only_some_runs_have(tmp_path):
    second = {**RUN, "seed": 1, "ece_dirichlet": 0.125}
    rows = ct.report.Rows([RUN, second], [], [], [])
    files = rows_files(rows)
    assert list(files) == [RESULTS]
    assert ct.report.read_rows(write(tmp_path, files)) == rows


@pytest.mark.parametrize(
    "text, message",
    [
        ("setting,seed\n", "columns objective, primary.*results.csv"),
        ("{head}\na,b,c,,maybe,0,0.5,0.5\n", "maybe.*line 2 of"),
        ("{head}\na,b,c,,True,zero,0.5,0.5\n", "zero.*line 2 of"),
        ("{head}\na,b,c,,True,0,inf,0.5\n", "accuracy is inf.*line 2 of"),
        ("{head}\na,b,c,,True,0,0.5\n", "fewer values.*line 2 of"),
        ("{head}\na,b,c,,True,0,0.5,0.5,0.5\n", "more or fewer.*line 2 of"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    head = "setting,objective,primary,secondary,interleaved,seed,accuracy,ece"
    write(tmp_path, {RESULTS: text.format(head=head)})
    with pytest.raises(ValueError, match=message):
        ct.report.read_rows(tmp_path)


def test_a_folder_without_results_is_none(tmp_path):
    with pytest.raises(ValueError, match="must hold results.csv"):
        ct.report.read_rows(tmp_path)
