"""Rows in, a report out."""

from caltrain_tf.report.page import report_page
from caltrain_tf.report.rows import rows_files
from caltrain_tf.report.table_files import build_tables
from caltrain_tf.report.table_files import table_texts
from caltrain_tf.report.tables import to_text
from caltrain_tf.report.writing import check_output
from caltrain_tf.report.writing import write_files


def write_report(rows, output, *, overwrite=False, progress=lambda text: None):
    """Writes a self-contained page, and its rows and tables beside it.

    `report.html` comes with `report_rows/`, of which `collect` makes the same
    page again, and `report_tables/` with every table as CSV, Markdown and
    LaTeX.

    Args:
        rows: A `Rows`, as of `collect`.
        output: The page's path.
        overwrite: Whether to replace files that are not of an earlier report.
        progress: Called with a text for every figure.

    Returns:
        `(text, paths)`: the main tables for the terminal, and the paths of all
        files.
    """
    # Before anything is drawn.
    check_output(output, overwrite)
    tables = build_tables(rows)
    page = report_page(rows, tables, progress)
    paths = write_files(
        output, page, rows_files(rows), table_texts(tables), overwrite
    )
    text = "\n\n".join(
        f"{setting}\n{to_text(table)}"
        for setting, table in tables["results"].items()
    )
    return text, paths
