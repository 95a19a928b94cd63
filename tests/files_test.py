import pytest

from caltrain_tf import files


@pytest.fixture(params=["local", "bucket"])
def folder(request, tmp_path):
    if request.param == "bucket":
        return files.as_path(f"ram://{tmp_path.name}")
    return files.as_path(tmp_path)


def test_files_are_written_whole_and_replaced(folder):
    path = folder / "runs" / "a" / "results.json"
    files.write_text(path, "first")
    files.write_bytes(str(path), "zweite Fassung, größer".encode())
    assert path.read_text() == "zweite Fassung, größer"
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]
    assert path.parent == folder / "runs" / "a"


def test_a_write_that_fails_leaves_what_was_there(folder):
    path = folder / "results.json"
    files.write_text(path, "whole")
    with pytest.raises(TypeError):
        files.write_bytes(path, 12)
    assert path.read_text() == "whole"


def test_what_is_not_there(folder):
    path = folder / "missing.json"
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.read_text()
    path.unlink(missing_ok=True)
