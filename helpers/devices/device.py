"""One device in the words of the workshop, whatever framework lists it, and which one a lesson takes first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]

# The frameworks that the workshop knows; `helpers.devices.frameworks` asks them.
TITLES = {
    "opencl": "OpenCL",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "torch": "PyTorch",
    "onnxruntime": "ONNX Runtime",
    "webgpu": "WebGPU",
}
RIGHT = "right"  # what is said of a device that multiplies as NumPy does
LOOP_FAULT = f"{RIGHT}, but compiles some loops wrongly"  # likewise, if the product is right and a loop is not
# Of devices, in the order in which a lesson prefers them. A simulator, such as Oclgrind, says it is of every kind.
KINDS = ("gpu", "accelerator", "cpu", "simulator")
# Names of GPUs inside a processor, where a framework tells nothing but the name: "AMD Radeon(TM) Graphics", "AMD Radeon
# 890M Graphics", "Intel(R) Iris(R) Xe Graphics", "Intel(R) Arc(TM) 140V GPU"; cards are called RX 7600, Arc A770, B580.
_AMD_INSIDE = r"(AMD )?Radeon(\(TM\))?( Vega \d+| \d+[MS])?( Graphics)?"
_INTEL_INSIDE = r"Intel(\(R\))?( .*\b(HD|UHD|Iris)\b.*| Graphics| Arc(\(TM\))?( \d+[A-Z]| Pro Graphics| Graphics).*)"
_INSIDE = re.compile(f"{_AMD_INSIDE}|{_INTEL_INSIDE}", re.IGNORECASE)


@dataclass(frozen=True)
class Device:
    """One device, as one framework sees it."""

    framework: str  # one of TITLES
    identifier: str  # the framework's own: "0:0" (OpenCL's platform and device), "/GPU:0", "cuda:0", "cpu:0"
    name: str  # that people use, such as "AMD EPYC"
    kind: str  # one of KINDS
    vendor: str = ""  # as the driver spells it; empty if unknown
    version: str = ""  # of the driver or runtime behind it; empty if unknown
    memory_bytes: int | None = None  # of the whole device; None if the framework does not tell
    compute_units: int | None = None  # cores of a CPU, multiprocessors of a GPU; None if the framework does not tell
    pci: str = ""  # the PCI address, such as "0000:01:00.0"; empty if unknown
    integrated: bool = False  # a GPU inside the processor, as far as the framework tells
    chosen: bool = False  # by a variable of the user's: PYOPENCL_CTX
    computes: str = ""  # by a small product: "right", LOOP_FAULT, "wrong: REASON", "failed: REASON"; empty if not tried
    # In the process that listed it: returns what multiplies two float32 matrices there (`devices.products`).
    prepare: Callable[[], Multiply] | None = field(default=None, compare=False, repr=False)
    # Likewise, of OpenCL alone: returns whether its compiler has the fault that `devices.products` describes.
    has_wrong_loop: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    @property
    def state(self) -> str:
        """The first word of `computes`: right, wrong or failed; empty if it was not tried."""
        return re.split("[:,]", self.computes)[0]

    @property
    def reason(self) -> str:
        """Why it does not compute right; empty where it does."""
        return self.computes.partition(": ")[2]

    @property
    def has_loop_fault(self) -> bool:
        """Whether it was tried, and its compiler turns some right loops into wrong ones."""
        return self.computes == LOOP_FAULT

    @property
    def is_usable(self) -> bool:
        """Whether it computes right, or has not been tried."""
        return self.state not in ("wrong", "failed")

    @property
    def runtime(self) -> str:
        """What is behind a device of OpenCL ("PoCL 3.1") or WebGPU ("llvmpipe through Vulkan"); otherwise empty."""
        if self.framework == "webgpu":
            return self.version.partition(", ")[0]
        if self.framework != "opencl":
            return ""
        found = re.search(r"(PoCL|CUDA|AMD-APP|D3D12|Mesa) .*|Oclgrind [\d.]+|rusticl", self.version)
        return found.group(0) if found else "Intel's driver" if self.vendor.startswith("Intel") else ""

    @property
    def pocl_version(self) -> tuple[int, int]:
        """Major and minor version of PoCL, where that is behind a device of OpenCL; otherwise (0, 0)."""
        found = re.search(r"PoCL (\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def __str__(self) -> str:
        """A short name for banners: "AMD EPYC (PoCL 3.1, OpenCL, CPU)"."""
        kind = self.kind.upper() if self.kind in ("gpu", "cpu") else self.kind
        parts = (self.runtime, TITLES.get(self.framework, self.framework), kind)
        return f"{self.name} ({', '.join(part for part in parts if part)})"


def looks_integrated(name: str) -> bool:
    """Return whether a GPU with this name is a part of a processor; some frameworks know nothing but the name."""
    return bool(_INSIDE.fullmatch(name))


def preference(device: Device) -> tuple[bool, bool, int, bool, bool, int, bool, tuple[int, int]]:
    """Return the key by which devices are sorted, the best first.

    What computes right before what was not tried; what a variable of the user's names; a GPU before an accelerator
    before a CPU before a simulator; a card before a GPU that is part of a processor; a driver without a known fault
    before one that has it; of GPUs the one with the most memory. OpenCL lists a CPU once for each driver: Intel's comes
    first, which compiles and computes fastest, on AMD's processors, too, and a newer PoCL before an older one
    (docs/opencl.md has the times). One that computes wrongly or fails must not be in the list at all.
    """
    memory = (device.memory_bytes or 0) if device.kind == "gpu" else 0
    untried, fault = device.state != RIGHT, device.has_loop_fault
    is_intel = device.kind == "cpu" and device.framework == "opencl" and device.vendor.startswith("Intel")
    major, minor = device.pocl_version
    kind = KINDS.index(device.kind)
    return untried, not device.chosen, kind, device.integrated, fault, -memory, not is_intel, (-major, -minor)
