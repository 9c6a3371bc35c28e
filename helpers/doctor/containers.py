"""Findings about containers that were started without the GPU."""

from __future__ import annotations

from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, tell

NODES = {nvidia.VENDOR: nvidia.NODES, amd.VENDOR: ("dev/kfd",)}
MAKERS = {nvidia.VENDOR: "NVIDIA", amd.VENDOR: "AMD"}


def container(facts: Facts) -> Results:
    """Was this container started without the GPU that the machine has: the PCI bus shows it, /dev does not."""
    if not facts.host.container or facts.host.hosted:
        return
    cards = facts.graphics_cards()
    without = [maker for maker, nodes in NODES.items() if maker in cards and not facts.exists(*nodes)]
    if without:
        files = ", ".join(f"/{NODES[maker][0]}" for maker in without)
        makers = " and ".join(MAKERS[maker] for maker in without)
        yield tell("containers-without-gpu", facts.host, makers=makers, files=files)


JUDGES = (container,)
