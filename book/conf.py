"""Sphinx's settings for `python3 workshop.py book`; helpers/commands/book.py prepares the pages and calls it."""

import tomllib
from pathlib import Path

PYPROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

release = PYPROJECT["version"]
project = "Any GPU workshop"
language = "en"
extensions = ["myst_nb", "sphinx.ext.githubpages"]
templates_path = ["templates"]
nitpicky = True

# The lessons as they are stored: nothing is executed, and nothing is fetched when somebody looks at a page.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_render_error_lexer = "none"  # what a lesson's error says is text, and no traceback that a lexer could read
myst_heading_anchors = 6  # named as GitHub names them
myst_enable_extensions = ["attrs_inline"]  # [text](target){.class}

html_title = project
html_baseurl = PYPROJECT.get("urls", {}).get("Book", "")  # each page then names its one address
html_context = {
    "repository": PYPROJECT.get("urls", {}).get("Repository", "").rstrip("/"),
    "default_mode": "auto",  # light or dark; without it, each first visit logs an error
}
html_last_updated_fmt = "%d %B %Y"
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "navbar_center": [],  # every page stands in the sidebar
    "search_bar_text": "Search the lessons ...",
    "back_to_top_button": False,
    "show_prev_next": False,  # each lesson ends with its own next
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["edition"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"**": ["pages.html"]}
html_favicon = "favicon.svg"  # without one, each first visit logs an error
html_static_path = ["book.css"]
html_css_files = ["book.css"]
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_use_index = False


def setup(app: object) -> None:
    """Let blocks of Python hold IPython's lines, such as !pip."""
    from ipython_pygments_lexers import IPython3Lexer

    app.add_lexer("python", IPython3Lexer)
