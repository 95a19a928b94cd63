import pytest

from caltrain_tf.report import writing
from caltrain_tf.report.page_parts import GENERATOR

PAGE = f"<!DOCTYPE html>{GENERATOR}"
ROWS = {"results.csv": "a\n1\n", "shift.csv": "b\n2\n"}
TABLES = {"results.md": "# Title\n"}


def test_everything_is_beside_the_page(tmp_path):
    output = tmp_path / "deep" / "my.report.html"
    paths = writing.write_files(output, PAGE, ROWS, TABLES)
    assert paths[-1] == str(output)
    assert output.read_text() == PAGE
    rows, tables = writing.paths(output)
    assert rows == str(tmp_path / "deep" / "my.report_rows")
    files = sorted(p.name for p in (tmp_path / "deep").rglob("*.*"))
    assert [f for f in files if f.endswith(".tmp")] == []
    assert (tmp_path / "deep" / "my.report_rows" / "shift.csv").exists()
    assert (tmp_path / "deep" / "my.report_tables" / "results.md").exists()


def test_an_earlier_report_is_replaced_whole(tmp_path):
    output = tmp_path / "report.html"
    writing.write_files(output, PAGE, ROWS, TABLES)
    (tmp_path / "report_rows" / "notes.csv").write_text("mine")
    newer = {"results.csv": "a\n3\n"}
    writing.write_files(output, PAGE + "newer", newer, {})
    assert output.read_text() == PAGE + "newer"
    rows = {p.name: p.read_text() for p in (tmp_path / "report_rows").iterdir()}
    # No rows of the earlier one are left, and what is not ours is.
    assert rows == {"results.csv": "a\n3\n", "notes.csv": "mine"}
    assert list((tmp_path / "report_tables").iterdir()) == []


def test_another_file_is_kept_unless_asked(tmp_path):
    output = tmp_path / "report.html"
    output.write_text("<html>mine</html>")
    for refuse in (
        lambda: writing.check_output(output),
        lambda: writing.write_files(output, PAGE, ROWS, TABLES),
    ):
        with pytest.raises(ValueError, match="earlier report.*report.html"):
            refuse()
    assert output.read_text() == "<html>mine</html>"
    assert not (tmp_path / "report_rows").exists()
    writing.check_output(output, overwrite=True)
    writing.write_files(output, PAGE, ROWS, TABLES, overwrite=True)
    assert output.read_text() == PAGE


def test_other_rows_are_kept_unless_asked(tmp_path):
    folder = tmp_path / "report_rows"
    folder.mkdir()
    (folder / "left_out.csv").write_text("mine")
    output = tmp_path / "report.html"
    with pytest.raises(ValueError, match="earlier report.*left_out.csv"):
        writing.write_files(output, PAGE, ROWS, TABLES)
    assert (folder / "left_out.csv").read_text() == "mine"
    assert not output.exists()


def test_the_same_rows_may_be_there_without_a_page(tmp_path):
    folder = tmp_path / "report_rows"
    folder.mkdir()
    for name, text in ROWS.items():
        (folder / name).write_text(text)
    writing.write_files(tmp_path / "report.html", PAGE, ROWS, TABLES)
    assert (tmp_path / "report.html").read_text() == PAGE


def test_a_folder_is_no_page(tmp_path):
    with pytest.raises(ValueError, match="must be a file.*folder"):
        writing.check_output(tmp_path)
