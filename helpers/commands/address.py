"""Write the course's address, from pyproject.toml, where pages need it: README's ways in, and the cell for Colab."""

from __future__ import annotations

import re
from pathlib import Path

from helpers import ROOT
from helpers.compute import host

PAGES = (ROOT / "README.md", ROOT / "docs" / "hosted.md")
WAYS_IN = re.compile(r"(?<=<!-- address -->\n).*?(?=<!-- end of address -->)", re.DOTALL)
CELL = re.compile(r'(?<=^REPOSITORY = ")[^"]*(?=")', re.MULTILINE)


def outdated() -> dict[Path, str]:
    """Return each page that has another address, with its new text."""
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    return {path: written(text) for path, text in texts.items() if text != written(text)}


def written(text: str) -> str:
    """Return a page's text with the address in it; without it where the course is not published."""
    text = WAYS_IN.sub(lambda _: ways_in(), text)
    return CELL.sub(lambda _: host.addresses().get("Repository", ""), text)


def ways_in() -> str:
    """Return the links that need no installation, as one line of Markdown; nothing where there are none."""
    book = host.addresses().get("Book", "")
    links = {
        "Try it now on your GPU": book and f"{book}/docs/taster.html",
        "Read the book": book,
        "Open lesson 00 on Binder": host.binder_link(),
    }
    line = " · ".join(f"[{words}]({address})" for words, address in links.items() if address)
    return line and f"{line}\n"
