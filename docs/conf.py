"""Sphinx settings; `make docs` builds with warnings as errors."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "extensions")]
# Kernels that execute the tutorials start elsewhere; they import this package too.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # figures into the pages
# GPFLOW_BAE_SHORT_LOOPS=1 cuts the tutorials' loops down, as CI does.

from gpflow_bae.versions import __version__  # noqa: E402

project = "gpflow_bae"
author = "The gpflow_bae contributors"
copyright = "the gpflow_bae contributors"
version = release = __version__

extensions = [
    "myst_nb",
    "notebooks",  # of docs/extensions
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build", "extensions", "results/*.notes.md", "refs.md"]
html_theme = "pydata_sphinx_theme"
html_title = "gpflow_bae"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
html_sidebars = dict.fromkeys(("index", "get_started", "gallery"), [])  # no pages below
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False

bibtex_bibfiles = ["refs.bib"]
bibtex_default_style = "plain"

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 1200  # seconds of a cell, also beside the tests on two cores
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # TensorFlow's C++ lines at the start of a kernel

autoclass_content = "both"  # what a constructor takes stands in its own docstring
autodoc_typehints = "none"  # the docstrings give shapes, which say more
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
