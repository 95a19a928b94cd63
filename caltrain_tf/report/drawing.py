"""Matplotlib figures inside a page."""

import base64
import html
import io
import re
import urllib.parse

import matplotlib

# CSS pixels an inch, and how many dots are drawn for each of them.
_PIXELS = 96
_DOTS = 2
# The smallest share of its size at which a figure's letters can be read.
_SMALLEST = 0.6
# An image of vectors of more characters is drawn as dots if that is less.
_LONG = 100_000
# Attributes with coordinates, of which a hundredth of a point cannot be seen.
# Others scale what is in them.
_COORDINATES = re.compile(r"(?<= )(?:d|x|y|transform)='(?:translate)?[^'a-z]*")


def figure_html(figure, title, caption, number):
    """Returns a figure as HTML, with nothing outside it.

    It is an image with its data inside: ids of one figure cannot meet those of
    another. It is of vectors, with letters as shapes, so that no font is
    needed; of dots where it has so many parts that this is much smaller.

    Args:
        figure: A `matplotlib.figure.Figure`.
        title: What it shows.
        caption: How it was computed.
        number: Of the figure, for links.
    """
    # Less long than base64.
    data = urllib.parse.quote(svg(figure), safe=" '()*+,/:;=@{}")
    source = f"data:image/svg+xml,{data}"
    if len(source) > _LONG:
        data = base64.b64encode(png(figure)).decode()
        source = min(source, f"data:image/png;base64,{data}", key=len)
    width, height = (round(_PIXELS * size) for size in figure.get_size_inches())
    title, caption = html.escape(title), html.escape(caption)
    return "\n".join(
        (
            f'<figure id="figure-{number}">',
            '<div class="scroll card" role="region" tabindex="0" '
            f'aria-label="{title}">',
            f'<img src="{source}" width="{width}" height="{height}" '
            f'alt="{title}. {caption}" '
            f'style="min-width:{_SMALLEST * width:.0f}px">',
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
    # Without the prologue, which names a document elsewhere, and comments,
    # which hold the texts that are drawn.
    image = text.getvalue()[text.getvalue().index("<svg") :]
    image = re.sub(r"<!--.*?-->", "", image, flags=re.DOTALL)
    image = re.sub(r"\s*\n\s*", " ", image).replace('"', "'")
    return _shorter(image)


def png(figure):
    """Returns a figure as a PNG image for fine screens, the same every time.

    Args:
        figure: A `matplotlib.figure.Figure`.
    """
    image = io.BytesIO()
    figure.savefig(
        image,
        format="png",
        dpi=_DOTS * _PIXELS,
        facecolor="white",
        metadata={"Software": None},
    )
    return image.getvalue()


def _shorter(image):
    """Takes out of an SVG image what is not seen or is said many times."""
    # Names of groups; what is referred to is in hexadecimal or a letter's name.
    image = re.sub(r" id='[a-zA-Z0-9]+(?:\.[a-z]+)*_\d+'", "", image)
    image = image.replace(" <g> ", "<g>").replace(" </g>", "</g>")
    image = _COORDINATES.sub(
        lambda found: re.sub(
            r"\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", found[0]
        ),
        image,
    )
    styles = {}

    def name(found):
        return f"class='s{styles.setdefault(found[1], len(styles))}'"

    image = re.sub(r"style='([^']*)'", name, image)
    rules = "".join(f".s{number}{{{text}}}" for text, number in styles.items())
    return image.replace("</style>", f"{rules}</style>", 1)
