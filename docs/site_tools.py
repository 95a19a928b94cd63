"""What building the site needs beyond Sphinx and its extensions."""

import importlib
import inspect
import re
import weakref

from matplotlib.figure import Figure
from sphinx.util.docutils import SphinxDirective
from sphinx_gallery.scrapers import figure_rst

_TABLE_RULE = re.compile(r"^\s*\|[-:| ]+\|\s*$")
_SECTION = re.compile(r"^\w[\w ]*:$")
_saved_figures = weakref.WeakSet()


def save_returned_figure(block, block_vars, gallery_conf):
    """Saves the figure that a block of a gallery script ends with.

    The functions of `ct.figures` return figures that pyplot does not know, so
    that sphinx-gallery's own scraper does not find them.
    """
    figure = block_vars["example_globals"].get("___")
    known = hasattr(figure, "number")
    if not isinstance(figure, Figure) or known or figure in _saved_figures:
        return ""
    _saved_figures.add(figure)
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=160)
    return figure_rst([path], gallery_conf["src_dir"])


class GalleryOrder:
    """Sorts the gallery by how a reader meets the subjects."""

    names = (
        "plot_fit.py",
        "plot_interleaved.py",
        "plot_trainer.py",
        "plot_temperature.py",
        "plot_reliability_intervals.py",
        "plot_conformal.py",
        "plot_binary_and_multi_label.py",
    )

    def __init__(self, source_dir):
        self.source_dir = source_dir

    def __call__(self, name):
        """Returns the sort key of a file: the names above, then the rest."""
        place = self.names.index(name) if name in self.names else 99
        return place, name


def link_gallery_pages(app, name, content):
    """Turns links to scripts of the gallery into links to their pages."""
    content[0] = re.sub(
        r"\((\.\./)?gallery/([\w/]+)\.py\)", r"(\1auto_gallery/\2)", content[0]
    )


def markdown_to_rst(app, what, name, obj, options, lines):
    """Turns the Markdown of our docstrings into reStructuredText, in place.

    Formulas are indented paragraphs, which become literal blocks, and tables
    become list tables. Runs before napoleon, which reads the sections.
    """
    result = []
    in_section = False
    position = 0
    while position < len(lines):
        line = lines[position]
        following = lines[position + 1] if position + 1 < len(lines) else ""
        if line.startswith("|") and _TABLE_RULE.match(following):
            rows = []
            while position < len(lines) and lines[position].startswith("|"):
                rows.append(lines[position])
                position += 1
            result += _list_table([rows[0], *rows[2:]])
            continue
        if line and not line.startswith(" "):
            in_section = bool(_SECTION.match(line)) and bool(
                following.startswith(" ")
            )
        starts_formula = line.startswith("    ") and not in_section
        if starts_formula and result and not result[-1]:
            result += ["::", ""]
            while position < len(lines) and (
                not lines[position] or lines[position].startswith(" ")
            ):
                result.append(lines[position])
                position += 1
            continue
        result.append(_link_names(_escape_bars(line)))
        position += 1
    lines[:] = result


def _escape_bars(line):
    # |x| in a sentence is an absolute value, and no substitution of RST.
    parts = line.split("`")
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    return "`".join(parts)


def _link_names(line):
    # `ct.losses.get` is a link to `caltrain_tf.losses.get`.
    return re.sub(r"`ct\.([\w.]+)`", r"`ct.\1 <caltrain_tf.\1>`", line)


def _list_table(rows):
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        cells = row.strip().strip("|").split("|")
        for number, cell in enumerate(cells):
            start = "   * -" if number == 0 else "     -"
            lines.append(f"{start} {cell.strip()}")
    return [*lines, ""]


class Api(SphinxDirective):
    """A table of public names of a module, then the docstring of each.

    Each line of the content has names that belong together, or a constant, a
    colon and what it holds.
    """

    required_arguments = 1
    has_content = True
    hidden_members = (
        "build, calibrate, call, compute_loss, compute_output_shape, "
        "from_config, get_config, "
        # Made by scikit-learn, for metadata that is routed to estimators.
        "set_fit_request, set_predict_proba_request, set_predict_request, "
        "set_score_request, set_transform_request"
    )

    def run(self):
        """Returns the nodes of the table and of the docstrings."""
        room = self.arguments[0]
        module = importlib.import_module(room)
        table = [f".. currentmodule:: {room}", "", ".. autosummary::"]
        table += ["   :nosignatures:", ""]
        constants, docstrings = [], []
        for line in self.content:
            name, colon, text = line.partition(":")
            if colon:
                constants += [f".. py:data:: {name}", "", f"   {text}", ""]
                continue
            for name in line.split():
                table.append(f"   {name}")
                docstrings += self.directive(name, getattr(module, name))
        lines = [*table, "", *constants, *docstrings]
        return self.parse_text_to_nodes("\n".join(lines))

    def directive(self, name, value):
        """Returns the lines that document one name."""
        if not inspect.isclass(value):
            return [f".. autofunction:: {name}", ""]
        if issubclass(value, BaseException):
            return [f".. autoexception:: {name}", ""]
        return [
            f".. autoclass:: {name}",
            "   :members:",
            f"   :exclude-members: {self.hidden_members}",
            "",
        ]
