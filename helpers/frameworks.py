"""The frameworks that the workshop knows, and how each one is asked for its devices; `helpers.devices` does the asking.

To add one, write a function that imports it and returns its version, its devices and a remark, and name it in
FRAMEWORKS. It runs in a subprocess, whose answer is JSON on standard output:

    python -m helpers.frameworks jax
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers.machine.host import cpu_name, tidy

if TYPE_CHECKING:
    import pyopencl as cl

# Of devices, in the order in which a lesson prefers them. A simulator, such as Oclgrind, says it is a GPU and all else.
KINDS = ("gpu", "accelerator", "cpu", "simulator")
SMALLEST_KERNEL = "__kernel void smallest(__global int *a) { a[0] = 1; }"
CANNOT_COMPILE = "is left out, it cannot compile"  # in the remark of OpenCL's answer


@dataclass(frozen=True)
class Device:
    """One device, as one framework sees it."""

    framework: str  # one of FRAMEWORKS
    identifier: str  # the framework's own: "0:0" (OpenCL's platform and device), "/GPU:0", "cuda:0", "cpu:0"
    name: str  # that people use, such as "AMD EPYC"
    kind: str  # one of KINDS
    vendor: str = ""  # as the driver spells it; empty if unknown
    version: str = ""  # of the driver or runtime behind it; empty if unknown
    memory_bytes: int | None = None  # of the whole device; None if the framework does not tell
    compute_units: int | None = None  # cores of a CPU, multiprocessors of a GPU; None if the framework does not tell
    pci: str = ""  # the PCI address, such as "0000:01:00.0"; empty if unknown

    @property
    def runtime(self) -> str:
        """What stands behind a device of OpenCL ("PoCL 3.1") or WebGPU ("llvmpipe through Vulkan"); else empty."""
        if self.framework == "webgpu":
            return self.version.partition(", ")[0]
        if self.framework != "opencl":
            return ""
        found = re.search(r"(PoCL|CUDA|AMD-APP) .*|Oclgrind [\d.]+", self.version)
        return found.group(0) if found else "Intel" if self.vendor.startswith("Intel") else ""

    def __str__(self) -> str:
        """A short name for banners: "AMD EPYC (PoCL 3.1, OpenCL, CPU)"."""
        kind = self.kind.upper() if self.kind in ("gpu", "cpu") else self.kind
        title = FRAMEWORKS[self.framework].title if self.framework in FRAMEWORKS else self.framework
        return f"{self.name} ({', '.join(part for part in (self.runtime, title, kind) if part)})"


# --------------------------------------------------------------------------------------- OpenCL, device by device


def compile_problem(device: cl.Device) -> str:
    """Return what the device's compiler says against the smallest kernel, an empty text if it compiles.

    PoCL 3.0 from pip lists a processor that is newer than its LLVM 14 (AMD's Zen 5, for one) and then refuses every
    program with "unknown target CPU 'generic'" (github.com/pocl/pocl/issues/1049).
    """
    import pyopencl as cl

    try:
        build_quietly(cl.Context([device]), SMALLEST_KERNEL)
    except cl.Error as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return next((line for line in lines if line.startswith("error")), lines[0])
    return ""


def build_quietly(context: cl.Context, source: str) -> cl.Program:
    """Compile OpenCL C without what compilers write past Python, and without a file left behind when it fails.

    Raises:
        pyopencl.Error: the source does not compile; its text holds the compiler's log.
    """
    import pyopencl as cl

    from helpers.quiet import caught_stderr

    program = cl.Program(context, source)
    try:
        with warnings.catch_warnings(), caught_stderr():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # some compilers talk when nothing is wrong
            program.build()
    except cl.Error as error:
        saved = re.search(r"\(source saved as (.+)\)", str(error))  # PyOpenCL's copy, in the temporary folder
        if saved:
            Path(saved[1]).unlink(missing_ok=True)
        raise
    return program


def describe_opencl(device: cl.Device, identifier: str = "") -> Device:
    """Describe a PyOpenCL device in the words of the workshop; nothing is compiled or run for it.

    Args:
        device: what PyOpenCL lists.
        identifier: its place, "platform:device"; empty where that does not matter.
    """
    import pyopencl as cl

    bits = _try(lambda: device.type) or 0
    kind = "gpu" if bits & cl.device_type.GPU else "cpu" if bits & cl.device_type.CPU else "accelerator"
    if "simulator" in str(_try(lambda: device.name)).lower():
        kind = "simulator"
    board = _try(lambda: device.board_name_amd) if kind == "gpu" else None  # AMD's `name` is the chip's code, "gfx1032"
    version = str(_try(lambda: device.platform.version)).strip()
    return Device(
        "opencl",
        identifier,
        cpu_name() if kind == "cpu" else tidy(str(board or _try(lambda: device.name) or "unnamed device")),
        kind,
        vendor=str(_try(lambda: device.vendor) or "").strip(),
        version=re.split(r"\s{2,}|, ", version)[0],  # without the list of build options: "OpenCL 3.0 PoCL 3.1"
        memory_bytes=_try(lambda: int(device.global_mem_size)),
        compute_units=_try(lambda: int(device.max_compute_units)),
        pci=_opencl_pci(device) if kind == "gpu" else "",
    )


def _opencl_pci(device: cl.Device) -> str:
    """The PCI address by NVIDIA's extension (cl_nv_device_attribute_query) or by AMD's topology; empty without one."""
    bus, slot = _try(lambda: device.pci_bus_id_nv), _try(lambda: device.pci_slot_id_nv) or 0
    domain = _try(lambda: device.pci_domain_id_nv) or 0
    if bus is not None:
        return f"{domain:04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"  # the slot's low three bits are the function
    place = _try(lambda: device.topology_amd)
    return f"0000:{place.bus & 0xFF:02x}:{place.device & 0xFF:02x}.{place.function & 7}" if place else ""


def _try(read: Callable[[], object]) -> object:
    """A property that a driver does not know raises its own kind of error; None then."""
    try:
        return read()
    except Exception:
        return None


# ------------------------------------------------------------ each function imports one framework and asks it

Answered = tuple[str, list[Device], str]  # version, devices, remark


def _ask_opencl() -> Answered:
    import pyopencl as cl

    try:
        platforms, error = cl.get_platforms(), ""
    except cl.Error as raised:
        platforms, error = [], f" ({raised})"
    devices: list[Device] = []
    notes: list[str] = []
    seen: list[tuple[object, ...]] = []
    for number, platform in enumerate(platforms):
        there = _try(platform.get_devices) or []
        name = str(_try(lambda p=platform: p.name))
        same = (name, _try(lambda p=platform: p.version), [_try(lambda d=device: d.name) for device in there])
        if same in seen:  # the same driver reached by two paths
            notes.append(f"platform {number} is platform {seen.index(same)} listed again, left out")
            there = []
        elif not there:
            notes.append(f"platform {number} ({name}) shows no device")
        seen.append(same)
        for n, device in enumerate(there):
            described = describe_opencl(device, f"{number}:{n}")
            problem = compile_problem(device)
            if problem:
                notes.append(f"{number}:{n} ({described.runtime or name}) {CANNOT_COMPILE}: {problem}")
            else:
                devices.append(described)
    if not platforms:
        folder = os.environ.get("OCL_ICD_VENDORS")
        where = f"OCL_ICD_VENDORS is set to {folder}" if folder else "no driver is registered"
        notes.append(f"no OpenCL platform found, {where}{error}")
    return cl.VERSION_TEXT, devices, "; ".join(notes)


def _ask_tensorflow() -> Answered:
    import tensorflow as tf

    vendor = "AMD" if tf.test.is_built_with_rocm() else "NVIDIA" if tf.test.is_built_with_cuda() else ""
    devices = []
    for device in tf.config.list_physical_devices():
        kind = {"CPU": "cpu", "GPU": "gpu", "XPU": "gpu"}.get(device.device_type, "accelerator")
        details = (_try(lambda d=device: tf.config.experimental.get_device_details(d)) or {}) if kind != "cpu" else {}
        name = cpu_name() if kind == "cpu" else tidy(details.get("device_name") or f"unnamed {device.device_type}")
        made_by = vendor if kind == "gpu" else ""
        if kind == "gpu" and sys.platform == "darwin":
            name, made_by = f"{cpu_name()} GPU", "Apple"
        identifier = "/" + device.name.removeprefix("/physical_device:")
        devices.append(Device("tensorflow", identifier, name, kind, made_by))
    return tf.__version__, devices, ""


def _ask_jax() -> Answered:
    import jax

    devices = []
    for device in jax.devices():
        # str() gives "cuda:0" or "rocm:0" where `platform` says only "gpu"; for a CPU it gives "TFRT_CPU_0".
        label = str(device) if re.fullmatch(r"[A-Za-z]+:\d+", str(device)) else f"{device.platform}:{device.id}"
        kind = {"cpu": "cpu", "tpu": "accelerator"}.get(device.platform, "gpu")
        vendors = {"cuda": "NVIDIA", "rocm": "AMD", "metal": "Apple", "tpu": "Google"}
        name = cpu_name() if kind == "cpu" else tidy(str(device.device_kind))
        devices.append(Device("jax", label, name, kind, vendors.get(label.split(":")[0].lower(), "")))
    if devices and devices[0].kind != "cpu":
        processors = _try(lambda: jax.devices("cpu")) or []
        devices += [Device("jax", f"cpu:{device.id}", cpu_name(), "cpu") for device in processors]
    return jax.__version__, devices, ""


def _ask_torch() -> Answered:
    import torch

    devices = [Device("torch", "cpu", cpu_name(), "cpu")]
    if torch.cuda.is_available():
        vendor = "AMD" if torch.version.hip else "NVIDIA"
        devices += [_torch_gpu(torch.cuda, "cuda", n, vendor) for n in range(torch.cuda.device_count())]
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        devices += [_torch_gpu(torch.xpu, "xpu", n, "Intel") for n in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        devices.append(Device("torch", "mps", f"{cpu_name()} GPU", "gpu", vendor="Apple"))
    return torch.__version__, devices, ""


def _torch_gpu(family: object, label: str, number: int, vendor: str) -> Device:
    known = family.get_device_properties(number)
    units = getattr(known, "multi_processor_count", None) or getattr(known, "gpu_eu_count", None)
    domain, bus, slot = (getattr(known, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    pci = f"{domain or 0:04x}:{bus:02x}:{slot:02x}.0" if isinstance(bus, int) and isinstance(slot, int) else ""
    memory = getattr(known, "total_memory", None)
    return Device("torch", f"{label}:{number}", tidy(known.name), "gpu", vendor, "", memory, units, pci)


def _ask_webgpu() -> Answered:
    import wgpu

    from helpers import webgpu

    devices: list[Device] = []
    notes: list[str] = []
    adapters = webgpu.adapters()
    for number, adapter in enumerate(adapters):
        problem = webgpu.problem(adapter)
        if problem:
            notes.append(f"{number} ({webgpu.runtime(adapter)}) is left out: {problem}")
            continue
        version = ", ".join(part for part in (webgpu.runtime(adapter), adapter.info["description"]) if part)
        name, kind, vendor = webgpu.title(adapter), webgpu.kind(adapter), webgpu.vendor(adapter)
        devices.append(Device("webgpu", str(number), name, kind, vendor, version))
    if not adapters:
        notes.append(webgpu.missing())
    return wgpu.__version__, devices, "; ".join(notes)


class Framework(NamedTuple):
    """A framework that the workshop knows."""

    title: str  # for people
    module: str  # what to import
    install: str  # how to get it
    ask: Callable[[], Answered]


_BY_LAB = "python3 workshop.py lab installs it"
FRAMEWORKS = {
    "opencl": Framework("OpenCL", "pyopencl", _BY_LAB, _ask_opencl),
    "tensorflow": Framework("TensorFlow", "tensorflow", _BY_LAB, _ask_tensorflow),
    "jax": Framework("JAX", "jax", _BY_LAB, _ask_jax),
    "torch": Framework("PyTorch", "torch", "optional: python3 workshop.py lab --with torch", _ask_torch),
    "webgpu": Framework("WebGPU", "wgpu", _BY_LAB, _ask_webgpu),
}
# TensorFlow loads Keras (and with it scikit-learn and matplotlib), TensorFlow Lite loads JAX: half of the 7 s, and none
# of it has a say in which devices there are. TensorFlow goes on without either. All else, its own libraries and device
# plug-ins among it, is loaded as in a lesson, so that a broken plug-in shows here too.
_NOT_LOADED = {"tensorflow": ("keras", "tf_keras", "jax")}


def answer(framework: str, timeout: float) -> None:
    """Answer for one framework on standard output as JSON, and end; what the framework prints goes to standard error.

    Args:
        framework: one of FRAMEWORKS.
        timeout: seconds after which nobody waits any longer.
    """
    import faulthandler
    import json

    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # If whoever asked is gone, nobody kills this process: it then ends by itself, even while a library hangs.
    faulthandler.enable()
    faulthandler.dump_traceback_later(timeout + 2, exit=True)
    sys.modules.update(dict.fromkeys(_NOT_LOADED.get(framework, ())))
    try:
        version, devices, message = FRAMEWORKS[framework].ask()
        found = {"version": str(version), "devices": [asdict(device) for device in devices], "message": message}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"}
    with channel:
        json.dump(found, channel)
    os._exit(0)  # the answer is out: skip the frameworks' own tidying up, which is slow and may crash


if __name__ == "__main__":
    answer(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60)
