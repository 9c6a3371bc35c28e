"""Tables and texts side by side: HTML in a notebook, aligned text everywhere else."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

MISSING = "not recorded"  # in place of a number that nobody has measured yet
TEXT_WIDTH = 100  # of texts side by side, in characters


@dataclass(frozen=True)
class Table:
    """Rows under headers, and lines below them: HTML in a notebook, aligned text everywhere else."""

    rows: Sequence[Sequence[object]]
    headers: Sequence[str]
    below: Sequence[str] = ()

    def __str__(self) -> str:
        from tabulate import tabulate

        return "\n".join([tabulate(self.rows, headers=self.headers, disable_numparse=True), *self.below])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from tabulate import tabulate

        table = tabulate(self.rows, headers=self.headers, tablefmt="html", disable_numparse=True)
        table = re.sub(r"<(t[dh])>", r'<\1 style="text-align: left">', table)  # JupyterLab pushes text to the right
        return table + "".join(f"<p>{html.escape(line)}</p>" for line in self.below)


def format_number(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits, without an exponent; "not recorded" for NaN.

    >>> format_number(4361.2), format_number(0.3041), format_number(15700), format_number(17440, digits=4)
    ('4,360', '0.304', '15,700', '17,440')
    """
    if math.isnan(value):
        return MISSING
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


@dataclass(frozen=True)
class SideBySide:
    """Texts side by side, each under its heading; a single one is shown unchanged."""

    texts: Sequence[str]  # one for each column
    headings: Sequence[str]  # one for each column

    def __str__(self) -> str:
        import itertools

        if len(self.texts) == 1:
            return self.texts[0]
        width = max(20, (TEXT_WIDTH - 3 * (len(self.texts) - 1)) // len(self.texts))
        columns = [[heading, "-" * width] for heading in self.headings]
        for lines, text in zip(columns, self.texts, strict=True):
            for line in text.split("\n"):
                lines += textwrap.wrap(line, width, replace_whitespace=False, drop_whitespace=False, tabsize=4) or [""]
        rows = itertools.zip_longest(*columns, fillvalue="")
        return "\n".join(" | ".join(line.ljust(width) for line in row).rstrip() for row in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # No colors of our own: the notebook's theme, light or dark, gives them.
        style = "white-space: pre-wrap; overflow-wrap: anywhere; text-align: left; margin: 0"
        columns = [f'<pre style="{style}">{html.escape(text)}</pre>' for text in self.texts]
        if len(columns) == 1:
            return columns[0]
        cell = 'style="text-align: left; vertical-align: top"'  # a table of fixed layout has columns of equal width
        heads = "".join(f"<th {cell}>{html.escape(head)}</th>" for head in self.headings)
        cells = "".join(f"<td {cell}>{column}</td>" for column in columns)
        return (
            '<table style="width: 100%; table-layout: fixed">'
            f"<thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody></table>"
        )
