"""List the workshop's commands; each is a small module with `add_arguments` and `run`.

A module whose PASSES_ON is true gets every argument that it does not know itself in `args.rest`.
workshop.py imports this file, helpers.errors and helpers.setup with whatever Python starts it: 3.8 or newer, and
without any package.
"""

from __future__ import annotations

import difflib
import importlib
from types import ModuleType

from helpers import ROOT
from helpers.errors import WorkshopError

# What each command does, in one line; learners read this list from its top.
GROUPS = {
    "To learn": {
        "lab": "open the lessons in JupyterLab: lesson 00, or the one that you name",
        "doctor": "report what is wrong, why, and what to type next",
        "devices": "list what can compute here, and whether it computes correctly",
        "plaidml": "build a separate environment with PlaidML 0.7.0, for lesson 06b",
    },
    "To teach": {
        "run": "execute lessons without a browser, and write notebooks and a report into build/",
        "book": "build a website of all lessons from their stored outputs, in build/book",
        "classroom": "write the files for a class: lessons without solutions, an nbgrader course",
    },
    "To change the course": {
        "lint": "check code, notebooks and pages; with --fix, bring them into the workshop's form",
        "test": "run the quick tests, one lesson's (test 04), or everything (test --all)",
        "store": "execute lessons again and store their outputs in notebooks/",
        "taster": "write docs/taster.html, a page that computes on any GPU without Python",
    },
}
if not (ROOT / "tests").is_dir():  # a student's copy of the course: `classroom` leaves out what these need
    GROUPS = {"To learn": GROUPS["To learn"], "To teach": {"run": GROUPS["To teach"]["run"]}}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}


def overview() -> str:
    """Return the list of all commands, one line each, under what they are for."""
    lines = ["The commands (COMMAND --help says more about one):"]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<12} {text}" for name, text in group.items())]
    return "\n".join(lines)


def check(name: str, call: str) -> None:
    """Refuse a name that no command has.

    Args:
        name: what was typed.
        call: how the workshop is called here, for the message.
    """
    if name in COMMANDS:
        return
    close = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.65)  # nobody who types `start` is led to `store`
    guess = f"Did you mean {close[0]}? " if close else ""
    raise WorkshopError(
        f"There is no command called {name!r}.",
        f"The commands are {', '.join(COMMANDS)}.",
        f"{guess}`{call} --help` says what each of them does.",
    )


def load(name: str) -> ModuleType:
    """Return the module of the command called `name`, one of COMMANDS."""
    return importlib.import_module(f"helpers.commands.{name}")
