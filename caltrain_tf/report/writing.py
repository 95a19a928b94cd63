"""The files of a report, written so that nothing of a user's is lost."""

import os

from caltrain_tf.report.page_parts import GENERATOR
from caltrain_tf.report.rows import FILES
from caltrain_tf.report.table_files import TABLE_FILES


def paths(output):
    """Returns where a report's files are.

    Args:
        output: The page, such as `report.html`.

    Returns:
        The folder of its rows and the folder of its tables.
    """
    stem = os.path.splitext(os.fspath(output))[0]
    return f"{stem}_rows", f"{stem}_tables"


def check_output(output, overwrite=False):
    """Raises where a page would replace something else.

    Args:
        output: The page's path.
        overwrite: Whether it may.
    """
    if os.path.isdir(output):
        raise ValueError(
            f"`output` must be a file. Received: the folder {str(output)!r}"
        )
    if os.path.exists(output) and not overwrite and not _is_report(output):
        raise ValueError(
            "`output` must not replace a file that is not of an earlier "
            "report, unless `overwrite` says so. "
            f"Received: {str(output)!r}, which exists"
        )


def write_files(output, page, rows, tables, overwrite=False):
    """Writes a page and, beside it, its rows and its tables.

    Args:
        output: The page's path.
        page: The text of the page.
        rows: Texts by the names of files.
        tables: Texts by the names of files.
        overwrite: Whether to replace files that are not of an earlier report.

    Returns:
        The paths of all files.
    """
    output = os.fspath(output)
    rows_folder, tables_folder = paths(output)
    texts = {os.path.join(rows_folder, name): rows[name] for name in rows}
    texts |= {
        os.path.join(tables_folder, name): tables[name] for name in tables
    }
    # Last: where it is, everything is.
    texts[output] = page
    ours = [os.path.join(rows_folder, name) for name in FILES]
    ours += [os.path.join(tables_folder, name) for name in TABLE_FILES]
    stale = [p for p in ours if p not in texts and os.path.exists(p)]
    if not overwrite and not _is_report(output):
        _refuse_others(texts, stale)
    for path in stale:
        os.remove(path)
    for path, text in texts.items():
        _write(path, text)
    return list(texts)


def _is_report(path):
    try:
        with open(path, encoding="utf-8") as file:
            return GENERATOR in file.read(2000)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _refuse_others(texts, stale):
    differing = [
        path
        for path, text in texts.items()
        if os.path.exists(path) and _read(path) != text
    ]
    if differing or stale:
        raise ValueError(
            "`output` must not replace files that are not of an earlier "
            "report, unless `overwrite` says so. "
            f"Received: {[*differing, *stale]}, which exist"
        )


def _read(path):
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (IsADirectoryError, UnicodeDecodeError):
        return None


def _write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.replace(temporary, path)
