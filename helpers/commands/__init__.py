"""The workshop's commands: a small module each, with `add_arguments` and `run`, here or in helpers/maintain.

A module whose PASSES_ON is true gets every argument that it does not know itself in `args.rest`.
workshop.py imports this file, and helpers.errors, with whatever Python starts it: 3.8 or newer, without any package.
"""

from __future__ import annotations

import difflib
import importlib
from types import ModuleType

from helpers.errors import WorkshopError

# What each command does, in one line.
COMMANDS = {
    "lab": "open the lessons in JupyterLab, at lesson 00 or at the one named",
    "run": "execute lessons without a browser and write build/: notebooks and a report",
    "test": "run every test (arguments go to pytest, for example: test -k opencl)",
    "train": "train a network on one process or many, whatever launcher starts them (docs/scaling.md)",
    "doctor": "say what is wrong here, why, and what to type next",
    "devices": "list what can compute here, as each framework sees it",
    "bench": "rank this machine: measure it, score it, keep the result, compare it (lesson 11)",
    "taster": "write docs/taster.html: one page that computes on any GPU, without Python",
    "book": "build a site of all lessons, from their stored outputs, in build/book",
    "classroom": "write what a teacher hands out and grades: lessons without solutions, an nbgrader course",
    "stick": "fill a USB stick with packages, MNIST and the lessons, for a room without a network",
    "plaidml": "build an environment of its own with PlaidML 0.7.0, for lesson 03, and show that it runs",
    "store": "for maintainers: execute lessons anew and store their outputs in notebooks/",
    "screenshots": "for maintainers: run lessons in JupyterLab and a browser, keep pictures in build/screenshots",
    "race": "for maintainers: time the lessons' training against the articles' code",
    "lock": "for maintainers: compile the lock files from pyproject.toml",
    "docs": "for maintainers: follow the links of pages and lessons (--outside asks the network, too)",
    "lint": "for maintainers: check code and notebooks, and change nothing",
    "format": "for maintainers: bring code and notebooks into the workshop's form (outputs stay as they are)",
}
MAINTAIN = ("store", "screenshots", "race", "lock", "docs", "lint", "format")


def overview() -> str:
    """Return the list of all commands, one line each."""
    lines = [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["The commands (COMMAND --help says more about one):", *lines])


def check(name: str, call: str) -> None:
    """Refuse a name that no command has.

    Args:
        name: what was typed.
        call: what stands before it, to be shown.
    """
    if name in COMMANDS:
        return
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    raise WorkshopError(
        f"There is no command called {name!r}.",
        f"The commands are {', '.join(COMMANDS)}.",
        f"{guess}`{call} --help` says what each of them does.",
    )


def load(name: str) -> ModuleType:
    """Return the module of the command called `name`, one of COMMANDS."""
    return importlib.import_module(f"helpers.{'maintain' if name in MAINTAIN else 'commands'}.{name}")
