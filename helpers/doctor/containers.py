"""Finds containers that were started without the GPU."""

from __future__ import annotations

from helpers.doctor import gpus
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, tell

VENDORS = {gpus.NVIDIA: "NVIDIA", gpus.AMD: "AMD"}


def find_missing_gpu(facts: Facts) -> Results:
    """Find a GPU of the machine that this container was started without: the PCI bus shows it, /dev does not."""
    if not facts.host.container or facts.host.hosted:
        return
    cards = facts.list_graphics_cards()
    without = [vendor for vendor in VENDORS if vendor in cards and not facts.has_file(*gpus.NODES[vendor])]
    if without:
        vendors = " and ".join(VENDORS[vendor] for vendor in without)
        files = ", ".join(f"/{gpus.NODES[vendor][0]}" for vendor in without)
        yield tell("containers-without-gpu", facts.host, vendors=vendors, files=files)


JUDGES = (find_missing_gpu,)
