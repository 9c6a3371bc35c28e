"""Write the taster: one HTML file that computes on the GPU of whoever opens it, offline and without Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from helpers import ROOT
from helpers.commands.files import short, write

STORED = ROOT / "docs" / "taster.html"  # as this command writes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("--output", type=Path, default=STORED, metavar="FILE", help=f"default: {short(STORED)}")


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write(args.output, build_page())
    size = args.output.stat().st_size / 1e3
    print(f"{short(args.output)}: {size:.0f} KB. Double-click it to open it in a browser.")
    return 0


def build_page(way_back: str = "") -> str:
    """Return the page: its text, style, scripts, kernels and weights, all in one.

    Args:
        way_back: the address of the page of lessons, where it stands beside one.
    """
    from helpers.lessons import web_pages

    page = web_pages.fill("taster.html", "gpu", "digit", "reader", "writer", "taster")
    link = f'<p><a href="{way_back}">To the lessons</a></p>' if way_back else ""
    return page.replace("<!-- in the book: the way back -->\n", link)


def build_pad() -> str:
    """Return the taster's drawing pad alone, as HTML for a page of the book, which names its theme in `data-theme`."""
    from helpers.lessons import web_pages

    return web_pages.fill("pad.html", "gpu", "digit", "reader", "pad")
