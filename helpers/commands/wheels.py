"""The folder `wheels`: packages for a room without a network, which `stick` fills and workshop.py installs from.

workshop.py imports this file with whatever Python starts it: 3.8 or newer, without any package.
"""

from __future__ import annotations

import contextlib
import json
import platform
from typing import Any

from helpers import ROOT
from helpers.errors import WorkshopError

FOLDER = "wheels"  # in ROOT
MADE_FOR = "made-for.json"  # in it: the computer's system and machine, that computer in words, and its Pythons
MEND = (
    "The folder wheels lacks a package, or has a damaged one. For PyTorch, other extras and GPUs it has none: for "
    "those delete it where a network is. Else copy it from the stick again; then repeat the command."
)


def made_for() -> dict[str, Any]:
    """Return what the packages in the folder are for; empty where there are none, and the network serves."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((ROOT / FOLDER / MADE_FOR).read_text(encoding="utf-8"))
    return {}


def options() -> list[str]:
    """Return what lets pip and uv, both called in ROOT, take packages from the folder alone, if it is there."""
    return ["--no-index", "--find-links", FOLDER] if made_for() else []


def pip() -> str:
    """Return the path of a wheel of pip, which can be run as it is, if it is there: the oldest runs on every Python."""
    wheels = sorted(map(str, (ROOT / FOLDER).glob("pip-*.whl"))) if made_for() else []
    return f"{wheels[0]}/pip" if wheels else ""


def check() -> None:
    """Refuse if the packages are for another kind of computer."""
    held = made_for()
    if held and (held["system"], held["machine"]) != (platform.system(), platform.machine()):
        raise WorkshopError(
            "The folder wheels has packages for another computer.",
            f"They are for: {held['words']}.",
            "Copy this computer's folder from the stick, or, where a network is, delete the folder wheels; repeat.",
        )
