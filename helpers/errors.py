"""The one exception that a learner sees when something foreseen goes wrong, and how a text is wrapped for it."""

from __future__ import annotations

import textwrap

LINE_WIDTH = 100  # of printed sentences, in characters


def wrap(text: str) -> str:
    """Break longer lines of a text between words; JupyterLab would break them in the middle of one."""
    options = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": "    "}
    lines = text.split("\n")
    return "\n".join(textwrap.fill(line, LINE_WIDTH, **options) if len(line) > LINE_WIDTH else line for line in lines)


class WorkshopError(Exception):
    """Say what is wrong, why, and what to do next.

    A notebook shows the message alone, without a traceback; `python -m helpers` prints it and exits with status 2.

    Args:
        what: one sentence that names what went wrong.
        why: the reason, as far as it is known.
        next: the next command to type, or the next thing to do.
    """

    def __init__(self, what: str, why: str = "", next: str = "") -> None:
        self.what, self.why, self.next = what, why, next
        lines = [what, why and f"Why:  {why}", next and f"Next: {next}"]
        super().__init__("\n".join(line for line in lines if line))

    def _render_traceback_(self) -> list[str]:
        """IPython calls this instead of printing a traceback."""
        return wrap(str(self)).splitlines()
