"""The figures that the five articles published, with their sources."""

from __future__ import annotations

import csv
from typing import NamedTuple

from helpers import ROOT

PUBLISHED = ROOT / "data" / "published_results.csv"


class Figure(NamedTuple):
    """One figure that an article published, and whether it can be true."""

    article: str  # `A` to `E`, as in data/README.md
    year: int  # of the article
    what: str  # what was measured or claimed
    device: str  # on which device, empty where the figure belongs to none
    value: float  # the figure as published, in `unit`
    unit: str  # of `value`
    source_wording_summary: str  # what the article said about it, in our words
    plausible: str  # `yes`, `no` or `unknown`
    why: str  # the arithmetic or the reason behind `plausible`


def read_figures(article: str | None = None) -> list[Figure]:
    """Return the figures that the workshop's source articles published, in the order of data/published_results.csv.

    Args:
        article: one of `A` to `E`; all of them by default.
    """
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figures = []
    for row in rows:
        year, value = int(row.pop("year")), float(row.pop("value"))
        figures.append(Figure(year=year, value=value, **row))
    return [figure for figure in figures if article in (None, figure.article)]
