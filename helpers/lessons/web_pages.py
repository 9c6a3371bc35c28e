"""Web pages of helpers/web, each as one HTML file: its style, its scripts, and the kernels and weights that it uses."""

from __future__ import annotations

import base64
import html
import json

import numpy as np

from helpers import ROOT

WEB = ROOT / "helpers" / "web"
# The weights, as float16, of dense layers of 128, 64 and 10 neurons, and on how many test images they are right.
# Trained on MNIST for 14 epochs with Adam, its rate falling from 0.002 as a cosine, in batches of 128; the images were
# turned by up to 14 degrees, moved by up to 6 percent, scaled by up to 12 percent in height and 20 in width, at random.
WEIGHTS = WEB / "digits.npz"
WRITER = ROOT / "data" / "writer.npz"


def join_writer(attend: str = "") -> str:
    """Return lesson 16b's kernels in WGSL, as one module.

    Args:
        attend: the kernel of exercise 3, which comes first, so that its lines keep their numbers; empty for ours.
    """
    return f"{attend or read_kernel('attend')}\n{read_kernel('writer')}"


def read_kernel(name: str) -> str:
    """Return the workshop's own WGSL, such as `add`, `dense` or `product`."""
    return (WEB / f"{name}.wgsl").read_text(encoding="utf-8")


def fill(name: str, *scripts: str, attend: str = "") -> str:
    """Return a page of helpers/web with its style, its scripts, kernels and weights.

    Args:
        name: of the HTML file.
        scripts: names of the JavaScript files, in their order.
        attend: the kernel of lesson 16b's exercise 3, for a page that only writes; empty for ours.
    """
    with np.load(WEIGHTS) as kept:
        arrays = [kept[f"arr_{number}"] for number in range(len(kept.files) - 2)]
        right, images = int(kept["right"]), int(kept["images"])
    facts: dict[str, object] = {"kernels": {"writer": join_writer(attend)}}
    if not attend:
        kernels = {file.stem: read_kernel(file.stem) for file in sorted(WEB.glob("*.wgsl"))}
        facts["kernels"] = kernels | {"writer": join_writer()}
        facts["shapes"] = [array.shape for array in arrays]
        facts["weights"] = base64.b64encode(b"".join(array.astype("<f2").tobytes() for array in arrays)).decode()
    weights = 0
    if "writer" in scripts:
        stored = dict(zip(("codebook", "weights"), order_writer(), strict=True))
        weights = stored["weights"].size
        facts["writer"] = {key: base64.b64encode(array.tobytes()).decode() for key, array in stored.items()}
    page = (WEB / name).read_text(encoding="utf-8")
    parts = {
        "STYLE": (WEB / "digit.css").read_text(encoding="utf-8"),
        "SCRIPT": "\n".join((WEB / f"{script}.js").read_text(encoding="utf-8") for script in scripts),
        "FACTS": json.dumps(facts).replace("</", "<\\/"),
        "ATTEND": html.escape(attend.strip()),
        "RIGHT": f"{right:,}",
        "IMAGES": f"{images:,}",
        "WEIGHTS": f"{weights:,}",
        "SIZES": " - ".join(str(size) for size in [784, *(array.shape[-1] for array in arrays[1::2])]),
    }
    for mark, text in parts.items():
        page = page.replace(f"@@{mark}@@", text)
    return page


def order_writer() -> tuple[np.ndarray, np.ndarray]:
    """Return lesson 16b's codebook, and its weights as float16 in the order that writer.wgsl names."""
    parts = ("before.gamma", "before.beta", *(f"{name}.kernel" for name in ("query", "key", "value")))
    parts += (*(f"{name}.bias" for name in ("query", "key", "value")), "mix.kernel", "mix.bias")
    parts += ("between.gamma", "between.beta", "hidden.kernel", "hidden.bias", "back.kernel", "back.bias")
    names = ["words.kernel", "words.bias", *(f"layer{number}_{part}" for number in (0, 1) for part in parts)]
    names += ["after.gamma", "after.beta", "scores.kernel", "scores.bias"]
    with np.load(WRITER) as kept:
        return kept["codebook"], np.concatenate([kept[name].astype("<f2").reshape(-1) for name in names])
