"""uv, which compiles the locks and builds environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers import ROOT
from helpers.errors import WorkshopError


def find() -> str:
    """Return the uv beside this Python, where workshop.py puts one, else that on the path.

    Raises:
        WorkshopError: there is none.
    """
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    found = shutil.which("uv", path=os.pathsep.join(places))
    if found is None:
        raise WorkshopError(
            "uv is not here.",
            "It installs packages and compiles locks; the set-up of workshop.py brings it.",
            "Type: python3 workshop.py doctor   (in conda: pip install -r requirements/uv.txt)",
        )
    return found


def run(what: str, *arguments: str, cwd: Path = ROOT, next: str) -> None:
    """Run uv.

    Args:
        what: the task, for the message.
        arguments: of uv.
        cwd: the folder to run it in.
        next: what helps if it fails.

    Raises:
        WorkshopError: uv is missing, or it failed.
    """
    command = [find(), "--quiet", "--no-progress", *arguments]
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip()[-1500:] or f"uv ended with status {done.returncode}."
        raise WorkshopError(f"{what} failed.", why, next)
