"""Writes one page with tables and figures of finished runs.

python baselines/report.py runs/ --output=report.html
python baselines/report.py report_rows/ --output=again.html

The arguments are folders that contain runs, at any depth, or the rows of an
earlier report, which are in `<name>_rows/` next to the page. `<name>_tables/`
has the tables as Markdown.
"""

import shlex
import sys

import flags

OUTPUT = flags.DEFINE_string("output", "report.html", "File of the page.")
CALIBRATORS = flags.DEFINE_list(
    "calibrators", [], "Fit `dirichlet`, `auto` too: seconds to minutes a run."
)


def main(folders):
    """Collects, draws and writes."""
    from caltrain_tf.experiments import collect, report

    if not folders:
        raise ValueError("Pass the folders of runs.")
    rows = collect.collect(folders, CALIBRATORS.value)
    command = shlex.join(["python", *sys.argv])
    text = report.write_report(rows, OUTPUT.value, command)
    print(f"\n{text}\n\n{OUTPUT.value}")


if __name__ == "__main__":
    flags.run(main, arguments=True)
