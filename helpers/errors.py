"""The one exception that a learner sees when something foreseen goes wrong."""

from __future__ import annotations


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
        from helpers.measure.tables import wrap

        return wrap(str(self)).splitlines()
