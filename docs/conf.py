"""Builds the site: `sphinx-build -W docs site`.

Guides are Markdown, the gallery is scripts that run while the site is built,
and the API pages are the docstrings.
"""

import os
import pathlib
import sys
import warnings

# Before TensorFlow is imported, by autodoc or by the gallery.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "agg")

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import site_tools  # noqa: E402

import caltrain_tf as ct  # noqa: E402

project = "caltrain_tf"
author = "The caltrain_tf authors"
copyright = author
version = release = ct.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/**", "auto_gallery/**/*.ipynb"]
# `name` is code, and a link where it is a name of ours.
default_role = "py:obj"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_custom_sections = [("Reference", "References")]
napoleon_use_ivar = True

html_theme = "pydata_sphinx_theme"
html_title = f"caltrain_tf {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "caltrain_tf"},
    "navbar_align": "left",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "default",
}
# Pages without pages below them need no empty column on the left.
html_sidebars = {
    page: [] for page in ("index", "start", "results", "references", "versions")
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "subsection_order": [
        f"gallery/{section}"
        for section in (
            "training",
            "posthoc",
            "measuring",
            "decisions",
            "tasks",
        )
    ],
    "within_subsection_order": "site_tools.GalleryOrder",
    "image_scrapers": ("matplotlib", "site_tools.save_returned_figure"),
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "doc_module": ("caltrain_tf",),
    "reference_url": {"caltrain_tf": None},
}
# The gallery's pages say what a reader is to notice, not what Keras logs.
warnings.filterwarnings("ignore", category=DeprecationWarning)


def setup(app):
    """Registers the API directive and the translation of our texts."""
    app.add_directive("api", site_tools.Api)
    app.connect("source-read", site_tools.link_gallery_pages)
    app.connect(
        "autodoc-process-docstring", site_tools.markdown_to_rst, priority=100
    )
