"""Write the course's address and release, from pyproject.toml, where pages need them."""

from __future__ import annotations

import re
from pathlib import Path

from helpers import ROOT
from helpers.devices import host

PAGES = (ROOT / "README.md", ROOT / "docs" / "start.md", ROOT / "docs" / "hosted.md")
WAYS_IN = re.compile(r"(?<=<!-- address -->\n).*?(?=<!-- end of address -->)", re.DOTALL)
FOLDER = re.compile(r"(?<=<!-- folder -->\n).*?(?=<!-- end of folder -->)", re.DOTALL)
CELL = re.compile(r'(?<=^REPOSITORY = ")[^"]*(?=")', re.MULTILINE)
RELEASE = re.compile(r'(?<=^RELEASE = ")[^"]*(?=")', re.MULTILINE)


def find_outdated() -> dict[Path, str]:
    """Return each page that has another address, with its new text."""
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    return {path: fill_in(text) for path, text in texts.items() if text != fill_in(text)}


def fill_in(text: str) -> str:
    """Return a page's text with the address in it; without it where the course is not published."""
    repository = host.addresses().get("Repository", "")
    folder = "Get the workshop's folder (on a repository's page, choose *Code*, then *Download ZIP*)."
    if repository:  # the release, as Binder and Colab open it; GitHub packs each tag
        folder = f"[Download the course]({repository}/archive/refs/tags/{host.release_tag()}.zip)."
    text = WAYS_IN.sub(lambda _: link_ways_in(), text)
    text = FOLDER.sub(lambda _: f"{folder}\n", text)
    text = CELL.sub(lambda _: repository, text)
    return RELEASE.sub(lambda _: host.release_tag(), text)


def link_ways_in() -> str:
    """Return the links that need no installation, as one line of Markdown; nothing where there are none."""
    book = host.addresses().get("Book", "")
    links = {
        "Try it now on your GPU": book and f"{book}/docs/taster.html",
        "Read the book": book,
        "Open lesson 00 on Binder": host.binder_link(),
    }
    line = " · ".join(f"[{words}]({address})" for words, address in links.items() if address)
    return line and f"{line}\n"
