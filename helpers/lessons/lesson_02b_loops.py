"""Lesson 02b, exercise 1: which loops of a kernel its compiler is asked to write out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helpers.devices.kernel_text import closing_bracket, without_comments

# How a kernel asks its compiler to write a whole loop out: clang's two pragmas, as a line or as an operator, and OpenCL
# C 3.0, section 6.13.10.2. A name such as ROWS may stand beside it; a number writes out a part of a longer loop.
_FULL = r"unroll(?:[ \t]*\(?[ \t]*[A-Z_]\w*[ \t]*\)?)?|clang[ \t]+loop[ \t]+unroll\((?:full|enable)\)"
_HINT = r"__attribute__\s*\(\(\s*(?:__)?opencl_unroll_hint(?:__)?\s*(?:\({}\))?\s*\)\)"
UNROLL = re.compile(
    rf'#pragma[ \t]+(?:{_FULL})[ \t]*$|_Pragma\s*\(\s*"(?:{_FULL})"\s*\)|' + _HINT.format(r"\s*[A-Z_]\w*\s*"), re.M
)
ANY_HINT = re.compile(
    r"#pragma[ \t]+(?:nounroll|unroll|clang[ \t]+loop[ \t]+unroll)[^\n]*"
    r'|_Pragma\s*\(\s*"[^"]*unroll[^"]*"\s*\)|' + _HINT.format("[^)]*")
)


def leave_loops(source: str) -> str:
    """Return a kernel without its hints on how to unroll loops.

    >>> leave_loops("#pragma unroll 2\nfor (;;) {}")
    '\nfor (;;) {}'
    """
    return ANY_HINT.sub("", source)


def find_rolled_loops(source: str) -> list[str]:
    """Return the heads of a kernel's loops over rows or vectors above which no hint asks to write all of them out.

    A loop is over rows or vectors if its condition, or otherwise its beginning, depends on ROWS or VECTORS and
    not on k.

    >>> find_rolled_loops("#pragma unroll\\nfor (int y = 0; y < ROWS; y++)\\n  for (int x = VECTORS; x--;) {}")
    ['for (int x = VECTORS; x--;)']
    """
    text = without_comments(source)
    for name, body in re.findall(r"#define[ \t]+(\w+)[ \t]+(.+)", text):
        text = re.sub(rf"(?<!#define )\b{name}\b", lambda _, body=body: body, text)
    assigned = re.findall(r"(\w+)\s*=(?!=)\s*([^;,\n]*)", re.sub(r"\bfor\s*\([^;]*;", "", text))
    of_inner, of_block = _find_dependent(assigned, {"k"}), _find_dependent(assigned, {"ROWS", "VECTORS"})
    rolled = []
    for found in re.finditer(r"\b(?:for|while)\s*\(", text):
        end = closing_bracket(text, found.end() - 1)
        parts = text[found.end() : end].split(";")
        condition, beginning = (parts[1], parts[0]) if len(parts) == 3 else (parts[0], "")
        about = next(
            (names for names in map(_find_names, (condition, beginning)) if names & (of_inner | of_block)), set()
        )
        before = text[: found.start()].rstrip()
        is_tail = text[end + 1 :].lstrip().startswith(";") and before.endswith("}")  # of `do { ... } while (...);`
        hints = list(UNROLL.finditer(before))
        if about & of_block and not about & of_inner and not is_tail and not (hints and hints[-1].end() == len(before)):
            rolled.append(" ".join(text[found.start() : end + 1].split()))
    return rolled


def _find_names(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _find_dependent(assigned: Sequence[tuple[str, str]], names: set[str]) -> set[str]:
    """Return the names, and those that are assigned what depends on one of them."""
    while more := {name for name, value in assigned if _find_names(value) & names} - names:
        names = names | more
    return names
