"""The workshop's commands: one small module each, with HELP, add_arguments and run.

A module whose PASSES_ON is true gets every argument that it does not know itself in `args.rest`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {  # name: help; workshop.py reads this without importing it, so it stays a literal
    "lab": "open the lessons in JupyterLab, at lesson 00 or at the one named",
    "run": "execute lessons without a browser and write build/: notebooks, pages, a report",
    "test": "run every test (arguments go to pytest, for example: test -k opencl)",
    "doctor": "say what is wrong here, why, and what to type next",
    "devices": "list what can compute here, as each framework sees it",
    "notebooks": "execute lessons anew and store their outputs in notebooks/",
    "screenshots": "open lessons in JupyterLab and a browser, run every cell, keep pictures in build/screenshots",
    "bench": "time the lessons' training against the articles' code; write build/bench.md",
    "plaidml": "build an environment of its own with PlaidML 0.7.0, for lesson 03, and show that it runs",
    "lock": "compile the lock files from pyproject.toml, for maintainers",
    "lint": "check code and notebooks, and change nothing",
    "format": "bring code and notebooks into the workshop's form (outputs stay as they are)",
}
NAMES = tuple(COMMANDS)


def load(name: str) -> ModuleType:
    """Return the module of the command called `name`, one of NAMES."""
    return importlib.import_module(f"{__name__}.{name}")
