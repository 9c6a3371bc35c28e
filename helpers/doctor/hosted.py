"""Findings about machines of others: Colab, Kaggle, and containers that were started without the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.compute.host import Host
from helpers.doctor import amd_gpus, nvidia
from helpers.doctor.facts import Facts
from helpers.doctor.findings import Failure, Finding

NODES = {nvidia.VENDOR: ("dev/nvidiactl", "dev/nvidia0", "dev/dxg"), amd_gpus.VENDOR: ("dev/kfd",)}
TPU = ("dev/accel0", "dev/vfio/0")  # Colab's and Kaggle's other accelerator


def _start_with_devices(host: Host) -> str:
    return (
        "Leave the container, and start it with the GPU. NVIDIA (needs the NVIDIA Container Toolkit outside):\n"
        "    docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...\n"
        "AMD:\n"
        "    docker run --device /dev/kfd --device /dev/dri --group-add video --ipc=host "
        "--security-opt seccomp=unconfined ..."
    )


COLAB = Failure(
    "hosted-colab-cpu", "Colab", "note",
    "This Colab session has no accelerator.",
    "Colab starts with a processor alone. Everything runs, and trainings take many times longer.",
    "In Colab's menu: Runtime > Change runtime type > T4 GPU > Save. The session starts anew, so run the first cell "
    "again. (Free GPUs are not always there.)",
    "https://github.com/NVIDIA/accelerated-computing-hub/issues/56 (2025-03); "
    "https://github.com/fastai/course22-web/issues/78 (2025-10)",
    ("hosted",),
)  # fmt: skip
KAGGLE = Failure(
    "hosted-kaggle-cpu", "Kaggle", "note",
    "This Kaggle session has no accelerator.",
    "A notebook starts with a processor alone. Everything runs, and trainings take many times longer.",
    "On the right: Session options > Accelerator > GPU T4 x2. The session starts anew. (Not P100: the frameworks there "
    "hold no code for it any more.)",
    "https://github.com/Kaggle/docker-python/issues/1546 (2026-03); https://www.kaggle.com/docs/notebooks",
    ("hosted",),
)  # fmt: skip
CONTAINER = Failure(
    "hosted-container", "container", "note",
    "The machine has a GPU ({makers}), and this container was started without it.",
    "A container sees the GPU only through device files that it was given: {files}.",
    _start_with_devices,
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit; AMD's rocm/tensorflow page (10.1)",
    ("nvidia", "amd-linux", "docker"), {"makers": "NVIDIA", "files": "/dev/nvidiactl is missing"},
)  # fmt: skip
FAILURES = (COLAB, KAGGLE, CONTAINER)


def colab_or_kaggle(facts: Facts) -> Iterator[Finding]:
    """Is this a session of Colab or Kaggle on a processor."""
    if facts.host.hosted and not nvidia.there(facts) and not facts.there(*TPU, *NODES[nvidia.VENDOR]):
        yield {"colab": COLAB, "kaggle": KAGGLE}[facts.host.hosted].found(facts.host)


def container(facts: Facts) -> Iterator[Finding]:
    """Was this container started without the GPU that the machine has: the PCI bus shows it, /dev does not."""
    if not facts.host.container or facts.host.hosted:
        return
    cards = facts.graphics_cards()
    without = [maker for maker, nodes in NODES.items() if maker in cards and not facts.there(*nodes)]
    if without:
        names = {nvidia.VENDOR: "NVIDIA", amd_gpus.VENDOR: "AMD"}
        files = ", ".join(f"/{NODES[maker][0]}" for maker in without)
        verb = "is missing" if len(without) == 1 else "are missing"
        yield CONTAINER.found(
            facts.host, makers=" and ".join(names[maker] for maker in without), files=f"{files} {verb}"
        )


JUDGES = (colab_or_kaggle, container)
