"""Matplotlib figures inside a page."""

import base64
import html
import io
import re

import matplotlib

# CSS pixels an inch.
_PIXELS = 96
# The smallest share of its size at which a figure's letters can be read.
_SMALLEST = 0.72


def figure_html(figure, title, caption, number):
    """Returns a figure as HTML, drawn in vectors, with nothing outside it.

    It is an image with its data inside: ids of one figure cannot meet those of
    another, and letters are drawn, so that no font is needed.

    Args:
        figure: A `matplotlib.figure.Figure`.
        title: What it shows.
        caption: How it was computed.
        number: Of the figure, for links.
    """
    data = base64.b64encode(svg(figure).encode()).decode()
    width, height = (
        round(_PIXELS * inches) for inches in figure.get_size_inches()
    )
    title, caption = html.escape(title), html.escape(caption)
    return "\n".join(
        (
            f'<figure id="figure-{number}">',
            '<div class="scroll card" role="region" tabindex="0" '
            f'aria-label="{title}">',
            f'<img src="data:image/svg+xml;base64,{data}" width="{width}" '
            f'height="{height}" alt="{title}. {caption}" '
            f'style="min-width:{min(_SMALLEST * width, width):.0f}px">',
            "</div>",
            f"<figcaption><strong>Figure {number}. {title}.</strong> {caption}"
            "</figcaption>",
            "</figure>",
        )
    )


def svg(figure):
    """Returns a figure as the text of an SVG image, the same every time.

    Args:
        figure: A `matplotlib.figure.Figure`.
    """
    text = io.StringIO()
    settings = {"svg.hashsalt": "caltrain_tf", "svg.fonttype": "path"}
    with matplotlib.rc_context(settings):
        figure.savefig(
            text,
            format="svg",
            facecolor="white",
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    # Without the prologue, which names a document elsewhere.
    image = text.getvalue()[text.getvalue().index("<svg") :]
    return re.sub(r"\s*\n\s*", " ", re.sub(r"<!--.*?-->", "", image))
