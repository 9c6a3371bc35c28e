"""The workshop's commands: one small module each, with HELP, add_arguments and run.

A module whose PASSES_ON is true gets every argument that it does not know itself in `args.rest`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = (
    "lab",
    "run",
    "test",
    "doctor",
    "devices",
    "notebooks",
    "screenshots",
    "bench",
    "plaidml",
    "lock",
    "lint",
    "format",
)


def load(name: str) -> ModuleType:
    """Return the module of the command called `name`, one of NAMES."""
    return importlib.import_module(f"{__name__}.{name}")
