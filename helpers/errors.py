"""What a learner sees when something goes wrong: one exception, lines that are wrapped, no traceback."""

from __future__ import annotations

import textwrap

LINE_WIDTH = 100  # of printed sentences, in characters


def wrap(text: str) -> str:
    """Break longer lines of a text between words; JupyterLab would break them in the middle of one.

    >>> print(wrap("A short line.\\n" + 30 * "four "))
    A short line.
    four four four four four four four four four four four four four four four four four four four four
        four four four four four four four four four four
    """
    lines = []
    for line in text.split("\n"):
        if len(line) > LINE_WIDTH:
            line = textwrap.fill(
                line, LINE_WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
            )
        lines.append(line)
    return "\n".join(lines)


def show_one_line(error: BaseException, line: str) -> None:
    """Let a notebook show one line for an exception in place of its traceback."""
    vars(error)["_render_traceback_"] = lambda: [line]  # IPython calls what has this name


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
