"""Findings about machines of others: Colab, Kaggle, and containers that were started without the GPU."""

from __future__ import annotations

from helpers.doctor import amd, nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Results, found

NODES = {nvidia.VENDOR: ("dev/nvidiactl", "dev/nvidia0", "dev/dxg"), amd.VENDOR: ("dev/kfd",)}
MAKERS = {nvidia.VENDOR: "NVIDIA", amd.VENDOR: "AMD"}
TPU = ("dev/accel0", "dev/vfio/0")  # Colab's and Kaggle's other accelerator


def colab_or_kaggle(facts: Facts) -> Results:
    """Is this a session of Colab or Kaggle on a processor."""
    if facts.host.hosted and not nvidia.works(facts) and not facts.exists(*TPU, *NODES[nvidia.VENDOR]):
        yield found("hosted-cpu", facts.host, words=[facts.host.hosted])


def container(facts: Facts) -> Results:
    """Was this container started without the GPU that the machine has: the PCI bus shows it, /dev does not."""
    if not facts.host.container or facts.host.hosted:
        return
    cards = facts.graphics_cards()
    without = [maker for maker, nodes in NODES.items() if maker in cards and not facts.exists(*nodes)]
    if without:
        files = ", ".join(f"/{NODES[maker][0]}" for maker in without)
        makers = " and ".join(MAKERS[maker] for maker in without)
        yield found("hosted-container", facts.host, makers=makers, files=files)


JUDGES = (colab_or_kaggle, container)
