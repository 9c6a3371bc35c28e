"""`python -m helpers COMMAND`: what workshop.py hands over to, and what conda and Binder call directly."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence

from helpers import commands
from helpers.errors import WorkshopError

# Keras 3 has two backends more, numpy and openvino, but they cannot train.
BACKENDS = ("tensorflow", "jax", "torch")
USE_KERAS = ("lab", "run", "test", "notebooks")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for something foreseen, 130 for Ctrl-C.

    Args:
        arguments: the command's name and its own arguments; those of the process if None.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(overview())
            return 0 if arguments else 2
        return _run(arguments[0], arguments[1:])
    except WorkshopError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def overview() -> str:
    """Return the list of all commands, one line each."""
    lines = [f"  {name:<12} {commands.load(name).HELP}" for name in commands.NAMES]
    head = "usage: python -m helpers COMMAND [...]\n\nThe commands (COMMAND --help says more about one):\n"
    return head + "\n".join(lines)


def _run(name: str, rest: list[str]) -> int:
    if name not in commands.NAMES:
        close = difflib.get_close_matches(name, commands.NAMES, n=1)
        raise WorkshopError(
            f"There is no command called {name!r}.",
            f"The commands are {', '.join(commands.NAMES)}.",
            f"Did you mean: {close[0]}" if close else "See them all: python -m helpers --help",
        )
    if name in USE_KERAS:
        check_keras_backend(os.environ.get("KERAS_BACKEND", ""))
    module = commands.load(name)
    parser = argparse.ArgumentParser(prog=f"python -m helpers {name}", description=module.HELP, allow_abbrev=False)
    module.add_arguments(parser)
    args, unknown = parser.parse_known_args(rest)
    if unknown and not getattr(module, "PASSES_ON", False):
        parser.error(f"unknown arguments: {' '.join(unknown)}")
    args.rest = unknown
    return module.run(args)


def check_keras_backend(name: str) -> None:
    """Refuse a KERAS_BACKEND that no lesson can train with; empty means unset.

    Raises:
        WorkshopError: there is no such backend, or it cannot train.
    """
    if name and name not in BACKENDS:
        raise WorkshopError(
            f"KERAS_BACKEND is {name!r}, and no lesson can train with that.",
            f"The lessons train with one of {', '.join(BACKENDS)}.",
            "Unset KERAS_BACKEND, or set it to one of these.",
        )


if __name__ == "__main__":
    sys.exit(main())
