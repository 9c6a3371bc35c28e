"""A kernel as text, in OpenCL C or WGSL: what several rooms ask of it without a compiler."""

from __future__ import annotations

import re

from helpers.errors import WorkshopError


class KernelError(WorkshopError):
    """A kernel, in OpenCL C or WGSL, that does not compile or is not there; the message names the lines."""


def without_comments(source: str) -> str:
    """Return WGSL or OpenCL C with its comments blanked out; every line stays where it is.

    >>> without_comments("x = 1; // one")
    'x = 1;       '
    """
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: re.sub(r"[^\n]", " ", found[0]), source, flags=re.DOTALL)


def closing_bracket(text: str, opening: int) -> int:
    """Return the position of the bracket that closes the one at `opening`.

    >>> closing_bracket("f(a[(1)], b); }", 1)
    11

    Raises:
        KernelError: none does.
    """
    depth = 0
    for position in range(opening, len(text)):
        if text[position] in "([{":
            depth += 1
        elif text[position] in ")]}":
            depth -= 1
        if depth == 0:
            return position
    raise KernelError(f"A bracket {text[opening]!r} of the kernel is never closed.", next="Add the missing bracket.")
