"""What others published: the figures of the five articles, and the data sheets of some GPUs, with their sources."""

from __future__ import annotations

import csv
from typing import NamedTuple

from helpers import ROOT

PUBLISHED = ROOT / "data" / "published_results.csv"
DATA_SHEETS = ROOT / "data" / "data_sheets.csv"
ROUNDING = 1.02  # data sheets round: 66.9 TFLOP/s are 67 there


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


def read_figures() -> list[Figure]:
    """Return the figures that the workshop's source articles published, in the order of data/published_results.csv."""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figures = []
    for row in rows:
        year, value = int(row.pop("year")), float(row.pop("value"))
        figures.append(Figure(year=year, value=value, **row))
    return figures


class DataSheet(NamedTuple):
    """What a vendor promises of a GPU."""

    device: str  # words of the name that OpenCL gives it
    gflops: float  # float32 without matrix units, in GFLOP/s
    bandwidth: float  # of its memory, in GB/s
    source: str


def find_data_sheet(device: str) -> DataSheet | None:
    """Return the data sheet of a GPU; None if the course knows none.

    >>> find_data_sheet("NVIDIA H100 80GB HBM3 (NVIDIA CUDA, OpenCL, GPU)").gflops
    67000.0

    Args:
        device: a name that holds the one that OpenCL gives it.
    """
    with DATA_SHEETS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["device"] in device:
                return DataSheet(row["device"], float(row["gflops"]), float(row["bandwidth"]), row["source"])
    return None


def describe_excess(device: str, speed: float, unit: str) -> str:
    """Return a sentence if a measured speed is above what the device's data sheet promises; empty otherwise.

    Args:
        device: its name.
        speed: what was measured, in `unit`.
        unit: GFLOP/s or GB/s.
    """
    sheet = find_data_sheet(device)
    if sheet is None:
        return ""
    most = {"GFLOP/s": sheet.gflops, "GB/s": sheet.bandwidth}[unit]
    if speed <= ROUNDING * most:
        return ""
    return f"{speed:,.0f} {unit} is more than the data sheet promises ({most:,.0f}), so the measurement is wrong."
