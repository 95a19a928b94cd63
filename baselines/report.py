"""Writes one page with tables and figures of finished runs.

python baselines/report.py runs/ --output=report.html
python baselines/report.py report_rows/ --output=again.html

The arguments are folders that contain runs, at any depth, or the rows of an
earlier report. The page is self-contained. The script also writes
`<name>_rows/`, from which the same page can be made again, and `<name>_tables/`
with the tables as CSV, Markdown and LaTeX.
"""

import os
import shlex
import sys

import flags

OUTPUT = flags.DEFINE_string("output", "report.html", "File of the page.")
DIRICHLET = flags.DEFINE_bool(
    "dirichlet",
    False,
    "Fit Dirichlet calibration to the predictions of runs whose results do not "
    "include it; this takes seconds to minutes per run.",
)
OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace files that no earlier report has written."
)


def show(text):
    """Shows what is being done."""
    print(text, file=sys.stderr, flush=True)


def main(folders):
    """Collects, draws and writes."""
    from caltrain_tf.experiments import collect, report

    if not folders:
        raise ValueError("Pass the folders of runs.")
    rows = collect.collect(folders, dirichlet=DIRICHLET.value, progress=show)
    text, paths = report.write_report(
        rows,
        OUTPUT.value,
        command=shlex.join(["python", *sys.argv]),
        overwrite=OVERWRITE.value,
        progress=show,
    )
    for row in rows.left_out.itertuples():
        print(f"Left out: {row.folder}: {row.reason}")
    print(f"\n{text}\n\n{paths[-1]}")
    for folder in dict.fromkeys(map(os.path.dirname, paths[:-1])):
        print(f"{folder}{os.sep}")


if __name__ == "__main__":
    flags.run(main, arguments=True, resumes=False)
