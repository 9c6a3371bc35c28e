"""Finds that PyTorch for Intel's GPUs lists none. Not verified on hardware; OpenCL is the family `opencl`'s."""

from __future__ import annotations

import re

from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, tell
from helpers.doctor.gpu_findings import describe_choosing

LEVEL_ZERO = re.compile(r"libze_intel_gpu\.so")  # Intel's driver for Level Zero, through which PyTorch reaches a GPU


def find_unlisted_gpu(facts: Facts) -> Results:
    """Find that PyTorch was built for Intel's GPUs and lists none."""
    if facts.torch.startswith("xpu") and facts.has_no_gpu("torch"):
        choosing = describe_choosing(facts, "Intel")
        words = [*(["variables"] if choosing["names"] else []), *(["registered"] if _has_level_zero(facts) else [])]
        yield tell("intel-xpu-not-listed", facts.host, words=words, about=["torch"], **choosing)


def _has_level_zero(facts: Facts) -> bool:
    """Return whether a Linux has Intel's driver for Level Zero."""
    folders = [facts.root / "usr/lib/x86_64-linux-gnu", facts.root / "usr/lib64", facts.root / "usr/lib"]
    return any(LEVEL_ZERO.match(file.name) for folder in folders if folder.is_dir() for file in folder.glob("libze_*"))


JUDGES = (find_unlisted_gpu,)
