"""Where programs are: on PATH, and in folders to which PATH may not lead."""

from __future__ import annotations

import os
import shutil

FOLDERS = (
    "/opt/rocm/bin",
    "/opt/rocm/core/bin",
    "/usr/lib/wsl/lib",  # WSL's nvidia-smi, which is not always on PATH: https://github.com/AlexsJones/llmfit/issues/52
    "/usr/sbin",
    "/sbin",
)


def find_program(name: str) -> str | None:
    """Return the path of a program; None where it is not."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(FOLDERS))
