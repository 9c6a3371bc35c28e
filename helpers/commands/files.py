"""Files that commands leave behind: written as a whole or not at all, where they can be, named briefly."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from helpers import ROOT


def write(path: Path, text: str) -> None:
    """Write a text file as a whole or not at all: a reader never meets half of it, whatever interrupts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def can_write(folder: Path) -> bool:
    """Say whether files can be made in a folder, by making one; the folder is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def short(path: Path) -> str:
    """Return a path relative to the project where it is inside, for messages."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
