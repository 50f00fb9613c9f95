"""The site: pages in MyST, API by numpydoc, gallery by sphinx-gallery, tutorials from notebooks."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext"), str(ROOT / "src")]
os.environ.setdefault("ONEFIT_DATA", str(ROOT.parent / "shared" / "data"))
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])

from docutils import nodes  # noqa: E402
from inventories import write_inventories  # noqa: E402

from onefit import __version__  # noqa: E402

project = "onefit"
author = copyright = "The onefit developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "formulas",
    "tutorials",
]
exclude_patterns = [
    ".*",
    "_build",
    "_ext",
    "**/GALLERY_HEADER.rst",
    "tutorials/*.ipynb",
    "gallery/**/*.ipynb",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
suppress_warnings = ["config.cache", "misc.highlighting_failure"]
nitpicky = False

# --- text ---------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist", "substitution"]
myst_heading_anchors = 3

copybutton_prompt_text = r">>> |\.\.\. |\$ "  # what is copied from a block runs as it is
copybutton_prompt_is_regexp = True

# --- API ----------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc has them, with shapes
templates_path = ["_templates"]
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# --- links to other projects, from tables that lie here: the build needs no network ---------------------

_INVENTORIES = write_inventories(HERE / "_build" / "inventories")
intersphinx_mapping = {name: (url, (str(file),)) for name, (url, file) in _INVENTORIES.items()}

# --- gallery ------------------------------------------------------------------------------------------


def _reset(gallery_conf, fname):  # noqa: ARG001
    """Before each example: one look for all pictures, and warnings are shown."""
    import matplotlib.pyplot as plt
    import numpy as np

    plt.rcParams.update({"figure.figsize": (7.0, 3.6), "figure.dpi": 100, "axes.spines.top": False})
    plt.rcParams.update({"axes.spines.right": False, "figure.constrained_layout.use": True})
    np.random.seed(0)  # noqa: NPY002 (networks and old code of others)


# Examples on real data that cannot be shipped are shown, not run, where the folder of the data is missing.
_ON_FILES = [file.stem for file in ROOT.glob("examples/*/plot_*.py") if "ONEFIT_DATA" in file.read_text()]
_NOT_RUN = [] if Path(os.environ["ONEFIT_DATA"]).is_dir() else _ON_FILES
if _NOT_RUN:
    print(f"no real data in {os.environ['ONEFIT_DATA']}: {len(_NOT_RUN)} examples are not run: {_NOT_RUN}")
_RUN = rf"/(?!(?:{'|'.join(_NOT_RUN)})\.py)plot_" if _NOT_RUN else "/plot_"
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": os.environ.get("ONEFIT_EXAMPLES", _RUN),
    "ignore_pattern": r"__init__\.py",
    "subsection_order": [
        "../examples/risk",
        "../examples/tuning",
        "../examples/structure",
        "../examples/beyond",
    ],
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", _reset),
    "show_memory": False,
    "min_reported_time": 5,
    "remove_config_comments": True,
    "doc_module": ("onefit",),
    "backreferences_dir": "gallery/backreferences",
    "inspect_global_variables": True,
    "abort_on_example_error": False,
    "plot_gallery": "True",
    "matplotlib_animations": False,
    "nested_sections": False,
    "download_all_examples": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

# --- docstrings: |β| is no substitution, λ* no emphasis, n_iter_ no link -----------------------------------

_LITERAL = re.compile(r"(``.*?``)")


def _as_text(_app, _what, _name, _obj, _options, lines):
    for k, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = _LITERAL.split(line)
        for j in range(0, len(parts), 2):
            parts[j] = re.sub(r"(?<!\\)\|", r"\|", parts[j])
            parts[j] = re.sub(r"(?<=[^\W\d_])\*(?=[\W_]|$)(?!\*)", r"\*", parts[j])
            parts[j] = re.sub(r"(?<=\()(\w+)_(?=[,+ )])", r"\1\_", parts[j])
        lines[k] = "".join(parts)


def _without_last_line(_app, doctree):
    """Blocks end with an empty line for doctest's sake, which readers need not see."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext().rstrip("\n")
        block.rawsource, block[:] = text, [nodes.Text(text)]


def setup(app):
    """Connect what has no setting."""
    app.connect("doctree-read", _without_last_line)
    app.connect("autodoc-process-docstring", _as_text, priority=100)  # before numpydoc


# --- look ---------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "onefit"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["onefit.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}
html_math_renderer = "mathml"
# Pages without pages below them have nothing to list at their side.
html_sidebars = {
    page: []
    for page in ("index", "start", "choosing", "how_it_works", "engine", "how_right", "how_fast", "papers")
}
