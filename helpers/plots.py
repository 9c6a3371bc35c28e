"""Every table and figure of the lessons, in one style: labelled axes with units, colour-blind-safe, one message each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows under headers: HTML in a notebook, aligned text everywhere else."""

    rows: Sequence[Sequence[object]]
    headers: Sequence[str]

    def __str__(self) -> str:
        from tabulate import tabulate

        return tabulate(self.rows, headers=self.headers, disable_numparse=True)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from tabulate import tabulate

        return tabulate(self.rows, headers=self.headers, tablefmt="html", disable_numparse=True)
