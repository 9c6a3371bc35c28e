"""Finds containers that were started without the GPU."""

from __future__ import annotations

from helpers.doctor import gpus
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, tell

MAKERS = {gpus.NVIDIA: "NVIDIA", gpus.AMD: "AMD"}


def find_missing_gpu(facts: Facts) -> Results:
    """Find a GPU of the machine that this container was started without: the PCI bus shows it, /dev does not."""
    if not facts.host.container or facts.host.hosted:
        return
    cards = facts.list_graphics_cards()
    without = [maker for maker in MAKERS if maker in cards and not facts.has_file(*gpus.NODES[maker])]
    if without:
        makers = " and ".join(MAKERS[maker] for maker in without)
        files = ", ".join(f"/{gpus.NODES[maker][0]}" for maker in without)
        yield tell("containers-without-gpu", facts.host, makers=makers, files=files)


JUDGES = (find_missing_gpu,)
