"""Build the book: a static site of all lessons from their stored outputs and of the pages, which needs no network."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.commands import lesson_files, next_lessons, taster, uv
from helpers.commands.files import short, write
from helpers.commands.run import BUILD
from helpers.devices.host import Host, binder_link, python_command
from helpers.errors import WorkshopError

if TYPE_CHECKING:
    from nbformat import NotebookNode

SITE = BUILD / "book"
SETTINGS = ROOT / "book"  # of Sphinx
README, FRONT = ROOT / "README.md", SETTINGS / "front.md"
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there is one book."""


def run(args: argparse.Namespace) -> int:
    """Build the site into build/book, where it replaces an earlier one, and return 0."""
    uv.need("sphinx", "myst_nb", "pydata_sphinx_theme")
    began = time.monotonic()
    build(SITE)
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file()) / 1e6
    print(f"{short(SITE)}: {size:.1f} MB, built in {time.monotonic() - began:.0f} s.")
    print(f"Double-click {short(SITE / 'index.html')} to open it in a browser.")
    serve = f"{python_command(Host.here())} -m http.server --bind 127.0.0.1 --directory {short(SITE)}"
    print(f"If search should show excerpts, serve the book instead: {serve}")
    return 0


def build(site: Path) -> None:
    """Build the site.

    Args:
        site: the folder for it; replaced as a whole, and only if all went well.

    Raises:
        WorkshopError: Sphinx warned of something, such as a link that leads nowhere.
    """
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="workshop-book-", dir=site.parent) as scratch:
        sources, html = Path(scratch) / "sources", Path(scratch) / "html"
        shipped = prepare(sources)
        options = ["-q", "-W", "-c", str(SETTINGS), "-d", str(Path(scratch) / "read")]
        command = [sys.executable, "-m", "sphinx", *options, str(sources), str(html)]
        env = os.environ | {"NO_COLOR": "1", "PYTHONUTF8": "1"}
        done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            output = (done.stderr.strip() or done.stdout.strip()).replace(f"{sources}{os.sep}", "")
            raise WorkshopError(
                "The book was not built.", output[-3000:], "Fix what Sphinx names, then repeat the command."
            )
        for file in shipped:
            if file.suffix == ".html":  # a page that is no page of Sphinx: it is opened, not downloaded
                shutil.copy(file, html / file.relative_to(ROOT))
        if taster.STORED in shipped:
            write(html / taster.STORED.relative_to(ROOT), taster.build_page(way_back="../index.html"))
        shutil.rmtree(site, ignore_errors=True)
        html.replace(site)


def prepare(folder: Path) -> list[Path]:
    """Write all pages into `folder` as Sphinx reads them, and return the other files that they link to, copied there.

    Pages keep their places, so that most links still hold; the front page takes README's.
    """
    import nbformat

    lessons = {path: lesson_files.read(path) for path in lesson_files.every()}
    titles = {path: lesson_files.name_lesson(path, notebook) for path, notebook in lessons.items()}
    places = ("docs/*.md", "docs/*/*.md", "[a-z]*/README.md", "*.md")
    pages = [path for place in places for path in sorted(ROOT.glob(place)) if path != README]
    shipped: list[Path] = []

    for path, notebook in lessons.items():
        write(folder / path.relative_to(ROOT), nbformat.writes(build_lesson_page(path, notebook, shipped)))
    for path in pages:
        write(folder / path.relative_to(ROOT), rewrite_links(path.read_text(encoding="utf-8"), path, shipped))
    write(folder / "index.md", rewrite_links(build_front_page(titles), README, shipped))
    for file in dict.fromkeys(shipped):
        (folder / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(ROOT))
    return shipped


def rewrite_links(text: str, path: Path, shipped: list[Path]) -> str:
    """Return the Markdown of the file `path` with links as MyST wants them.

    Args:
        text: all of it, or a cell.
        path: where its links start from.
        shipped: gets the files that it links to and that are no pages.
    """

    def link(found: re.Match[str]) -> str:
        place, mark, anchor = found[1].partition("#")
        file = (path.parent / place).resolve() if place else path
        if re.match(r"[a-z]+:", place) or not file.is_relative_to(ROOT) or not file.is_file():
            return found[0]
        if file == README:
            page = os.path.relpath(ROOT / "index.md", path.parent).replace(os.sep, "/")
            return f"]({page}{mark}{anchor})"
        if anchor and f'\n<a id="{anchor}"></a>\n' in file.read_text(encoding="utf-8"):
            return f"](#{anchor})"  # as is written below: MyST knows it by its name alone
        if file.suffix not in (".md", ".ipynb"):
            shipped.append(file)
            has_class = text[found.end() :].startswith("{")
            return found[0] + ("{.external}" if file.suffix == ".html" and not has_class else "")
        return found[0]

    return re.sub(r'^<a id="([^"]+)"></a>$', r"(\1)=", _LINK.sub(link, text), flags=re.MULTILINE)


def build_lesson_page(path: Path, notebook: NotebookNode, shipped: list[Path]) -> NotebookNode:
    """Return a lesson as a page: its links and alternative texts as MyST wants them, and whose outputs it shows."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = rewrite_links(cell.source, path, shipped)
            continue
        metadata = [output.get("metadata", {}) for output in cell.outputs]
        alternatives = [entry["image/png"]["alt"] for entry in metadata if "alt" in entry.get("image/png", {})]
        if alternatives:
            # With a scale Sphinx makes a figure a link to its file.
            cell.metadata["mystnb"] = {"image": {"alt": " ".join(alternatives), "scale": "100"}}
        for data in (output.data for output in cell.outputs if "text/html" in output.get("data", {})):
            data["text/html"] = data["text/html"].replace("<table", '<table class="dataframe"')  # the theme knows those
    _, _, rest = notebook.cells[0].source.partition("\n")
    facts = lesson_files.facts(notebook)
    where = f"These outputs were computed on {facts['device']}, profile `{facts['profile']}`. " if facts else ""
    binder = binder_link(path.name)
    launch = f", or [open it on Binder]({binder})" if binder else ""
    note = f"{where}Run the lesson yourself: `python3 workshop.py lab {lesson_files.number(path)}`{launch}."
    notebook.cells[0].source = f"# {lesson_files.name_lesson(path, notebook)}\n\n*{note}*\n{rest}"
    return notebook


def build_front_page(titles: Mapping[Path, str]) -> str:
    """Return the front page: its pad, its doors, README's paths as links, the contents from which the sidebar comes."""
    text = FRONT.read_text(encoding="utf-8")
    links = {lesson_files.number(path): f"[{title}](notebooks/{path.name})" for path, title in titles.items()}
    listed = [
        f"- **{name}**\n" + "".join(f"  - {links[number]}\n" for number in numbers)
        for name, numbers in next_lessons.read_paths().items()
    ]
    binder = binder_link()
    text = text.replace("{pad}", taster.build_pad())
    text = text.replace("{binder}", f" Or [open it on Binder]({binder})." if binder else "")
    rows = [f"{title} <notebooks/{path.stem}>" for path, title in titles.items()]
    return text.replace("{paths}\n", "".join(listed)).replace("{lessons}", "\n".join(rows))
