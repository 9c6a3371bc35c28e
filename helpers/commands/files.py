"""What commands leave behind: files written as a whole or not at all, and texts that do no harm to a terminal."""

from __future__ import annotations

import os
from pathlib import Path

from helpers import ROOT

MOST = 2000  # characters that are kept of a foreign text


def write(path: Path, text: str) -> None:
    """Write a text file as a whole or not at all: a reader never meets half of it, whatever interrupts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def printable(text: str) -> str:
    """Return foreign text for a terminal or a page: in its lines, but with control characters written out as `\\x1b`.

    Otherwise a notebook's error could clear the reader's screen, write over its lines, or fill the clipboard.
    """
    kept = text if len(text) <= MOST else f"{text[:MOST]} ..."
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in kept
    )


def find_visible(folder: Path, pattern: str) -> list[Path]:
    """Return the files below `folder` that fit `pattern`, sorted, without hidden ones such as macOS's `.DS_Store`."""
    fitting = (path for path in sorted(folder.rglob(pattern)) if path.is_file())
    return [path for path in fitting if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def short(path: Path) -> str:
    """Return a path relative to the project where it is inside, for messages."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
