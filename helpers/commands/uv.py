"""The packages that few commands need; and uv, which builds environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers import ROOT
from helpers.devices.host import WORKSHOP, Host, has_module, python_command
from helpers.errors import WorkshopError

TOOLS = "--constraints requirements/lock.txt --group test --group book"


def need(*modules: str) -> None:
    """Refuse if a package that only the course's authors need is not here.

    Args:
        modules: what is imported of it.

    Raises:
        WorkshopError: one of them is missing; workshop.py installs them, conda does not.
    """
    if missing := [name for name in modules if not has_module(name)]:
        raise WorkshopError(
            f"Packages that this command needs are not installed: {', '.join(missing)}.",
            "Few commands need them, so the lessons' setup leaves them out.",
            f"uv pip install --python {python_command(Host.here())} {TOOLS}",
        )


def find() -> str:
    """Return the uv beside this Python, where workshop.py puts one, else that on the path.

    Raises:
        WorkshopError: there is none.
    """
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    found = shutil.which("uv", path=os.pathsep.join(places))
    if found is None:
        raise WorkshopError(
            "uv is missing.",
            "It installs packages; workshop.py installs it.",
            f"Type: {WORKSHOP} doctor   (with conda: pip install -r requirements/uv.txt)",
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
