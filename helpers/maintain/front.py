"""Write what README shows first into docs/front: a figure that lesson 00 stored, and badges, which no service draws.

    .venv/bin/python -m helpers.maintain.front

Run it after `store 00`; tests/test_front.py holds the files to the lesson and to pyproject.toml.
"""

from __future__ import annotations

import base64
import re
import tomllib

from helpers import ROOT
from helpers.commands import files, lesson_files
from helpers.measure.plots import BLUE

README, FOLDER = ROOT / "README.md", ROOT / "docs" / "front"
LESSON, CELL = "00", "091e061f"  # "Busy is not the same as fast": one message, and small enough for a first screen
DARK = "#555555"
ALT = re.compile(r"!\[[^\]]*\]\(docs/front/busy\.png\)")


def main() -> None:
    """Write the figure, the badges, and the figure's alternative text in README."""
    png, alt = figure()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "busy.png").write_bytes(png)
    for name, (left, right) in badges().items():
        files.write(FOLDER / f"{name}.svg", badge(left, right))
    text = README.read_text(encoding="utf-8")
    files.write(README, ALT.sub(lambda _: f"![{alt}](docs/front/busy.png)", text))


def figure() -> tuple[bytes, str]:
    """Return the PNG that the lesson stored, and its alternative text as one line."""
    (path,) = lesson_files.find([LESSON])
    (cell,) = (cell for cell in lesson_files.read(path).cells if cell.id == CELL)
    (output,) = (output for output in cell.outputs if "image/png" in output.get("data", {}))
    alt = " ".join(output.metadata["image/png"]["alt"].split())
    return base64.b64decode(output.data["image/png"]), alt


def badges() -> dict[str, tuple[str, str]]:
    """Return the two halves of each badge, by file name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    low, high = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups())
    return {
        "python": ("Python", " | ".join(f"3.{minor}" for minor in range(low, high))),
        "licence": ("licence", project["license"].replace(" AND ", ", ").replace("CC-BY-4.0", "CC BY 4.0")),
        "verified": ("verified on", "Linux, processors"),
        "binder": ("Binder", "lesson 00"),
    }


def badge(left: str, right: str) -> str:
    """Return an SVG with white words on grey and on blue; textLength keeps them inside, whatever font is there."""
    words = [round(6.3 * len(text)) for text in (left, right)]
    widths = [width + 12 for width in words]
    label = f"{left}: {right}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" aria-label="{label}">',
        f"<title>{label}</title>",
        f'<rect width="{sum(widths)}" height="20" rx="3" fill="{BLUE}"/>',
        f'<path d="M3 0h{widths[0] - 3}v20h-{widths[0] - 3}a3 3 0 0 1-3-3v-14a3 3 0 0 1 3-3z" fill="{DARK}"/>',
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">',
        f'<text x="6" y="14" textLength="{words[0]}">{left}</text>',
        f'<text x="{widths[0] + 6}" y="14" textLength="{words[1]}">{right}</text>',
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
