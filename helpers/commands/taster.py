"""Write the taster: one HTML file that computes on the GPU of whoever opens it, offline and without Python."""

from __future__ import annotations

import argparse
import base64
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.commands.files import short, write

if TYPE_CHECKING:
    import numpy as np

WEB = ROOT / "helpers" / "web"
# The weights, as float16, of dense layers of 128, 64 and 10 neurons, and on how many test images they are right.
# Trained on MNIST for 14 epochs with Adam, its rate falling from 0.002 as a cosine, in batches of 128; the images were
# turned by up to 14 degrees, moved by up to 6 percent, scaled by up to 12 percent in height and 20 in width, at random.
WEIGHTS = WEB / "digits.npz"
WRITER = ROOT / "data" / "writer.npz"
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
    page = _fill("taster.html", "gpu", "digit", "reader", "writer", "taster")
    link = f'<p><a href="{way_back}">To the lessons</a></p>' if way_back else ""
    return page.replace("<!-- in the book: the way back -->\n", link)


def build_pad() -> str:
    """Return the taster's drawing pad alone, as HTML for a page of the book, which names its theme in `data-theme`."""
    return _fill("pad.html", "gpu", "digit", "reader", "pad")


def _fill(name: str, *scripts: str) -> str:
    """Return a page of helpers/web with its style, its scripts, kernels and weights."""
    import json

    import numpy as np

    with np.load(WEIGHTS) as kept:
        arrays = [kept[f"arr_{number}"] for number in range(len(kept.files) - 2)]
        right, images = int(kept["right"]), int(kept["images"])
    facts = {
        "kernels": {file.stem: file.read_text(encoding="utf-8") for file in sorted(WEB.glob("*.wgsl"))},
        "shapes": [array.shape for array in arrays],
        "weights": base64.b64encode(b"".join(array.astype("<f2").tobytes() for array in arrays)).decode(),
    }
    weights = 0
    if "writer" in scripts:
        stored = dict(zip(("codebook", "weights"), _order_writer(), strict=True))
        weights = stored["weights"].size
        facts["writer"] = {key: base64.b64encode(array.tobytes()).decode() for key, array in stored.items()}
    page = (WEB / name).read_text(encoding="utf-8")
    parts = {
        "STYLE": (WEB / "digit.css").read_text(encoding="utf-8"),
        "SCRIPT": "\n".join((WEB / f"{script}.js").read_text(encoding="utf-8") for script in scripts),
        "FACTS": json.dumps(facts).replace("</", "<\\/"),
        "RIGHT": f"{right:,}",
        "IMAGES": f"{images:,}",
        "WEIGHTS": f"{weights:,}",
        "SIZES": " - ".join(str(size) for size in [784, *(array.shape[-1] for array in arrays[1::2])]),
    }
    for mark, text in parts.items():
        page = page.replace(f"@@{mark}@@", text)
    return page


def _order_writer() -> tuple[np.ndarray, np.ndarray]:
    """Return lesson 16b's codebook, and its weights as float16 in the order that writer.wgsl names."""
    import numpy as np

    parts = ("before.gamma", "before.beta", *(f"{name}.kernel" for name in ("query", "key", "value")))
    parts += (*(f"{name}.bias" for name in ("query", "key", "value")), "mix.kernel", "mix.bias")
    parts += ("between.gamma", "between.beta", "hidden.kernel", "hidden.bias", "back.kernel", "back.bias")
    names = ["words.kernel", "words.bias", *(f"layer{number}_{part}" for number in (0, 1) for part in parts)]
    names += ["after.gamma", "after.beta", "scores.kernel", "scores.bias"]
    with np.load(WRITER) as kept:
        return kept["codebook"], np.concatenate([kept[name].astype("<f2").reshape(-1) for name in names])
