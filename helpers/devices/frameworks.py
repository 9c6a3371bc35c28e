"""The frameworks that the workshop knows, and how each is asked for its devices; `helpers.devices` asks.

To add one, write a function that imports it and returns its version, its devices and a remark, and name it in
FRAMEWORKS. Each device brings what multiplies on it (`devices.products`). All of it runs in a subprocess (`answer`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from helpers.devices import products
from helpers.devices.device import TITLES, Device, looks_integrated
from helpers.devices.host import WORKSHOP, cpu_name, tidy
from helpers.running import workarounds

if TYPE_CHECKING:
    import jax
    import pyopencl as cl
    import tensorflow as tf

T = TypeVar("T")

# --------------------------------------------------------------------------------------- OpenCL, device by device


def opencl_platforms() -> list[tuple[cl.Platform, list[cl.Device]]]:
    """Return each OpenCL platform with its devices; an empty list where the loader finds no platform."""
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error:  # PLATFORM_NOT_FOUND_KHR: the loader found no ICD
        return []
    # rusticl hides its devices until RUSTICL_ENABLE is set.
    return [(platform, _read_or_none(platform.get_devices) or []) for platform in platforms]


def opencl_devices() -> dict[str, cl.Device]:
    """Return the OpenCL devices of all platforms by their place, "platform:device"."""
    numbered = enumerate(opencl_platforms())
    return {f"{number}:{place}": device for number, (_, there) in numbered for place, device in enumerate(there)}


def describe_opencl(device: cl.Device, identifier: str = "") -> Device:
    """Describe a PyOpenCL device in the words of the workshop; nothing is compiled or run for it.

    Args:
        device: what PyOpenCL lists.
        identifier: its place, "platform:device"; empty where that does not matter.
    """
    import pyopencl as cl

    bits = _read_or_none(lambda: device.type) or 0
    kind = "gpu" if bits & cl.device_type.GPU else "cpu" if bits & cl.device_type.CPU else "accelerator"
    name = _read_or_none(lambda: device.name)
    if re.search("simulator|emulat", str(name), re.IGNORECASE):  # Oclgrind; Intel's for FPGAs
        kind = "simulator"
    platform = _read_or_none(lambda: device.platform.name)
    is_layer = platform in ("OpenCLOn12", "Clover")  # above the GPU's own driver, or before it
    # AMD's `name` is the chip's code, "gfx1032".
    board = _read_or_none(lambda: device.board_name_amd) if kind == "gpu" else None
    version = str(_read_or_none(lambda: device.platform.version)).strip()
    if platform == "rusticl":  # its version does not say whose it is
        version += " rusticl"
    return Device(
        "opencl",
        identifier,
        cpu_name() if kind == "cpu" else tidy(str(board or name or "unnamed device")),
        kind,
        vendor=str(_read_or_none(lambda: device.vendor) or "").strip(),
        version=re.split(r"\s{2,}|, ", version)[0],  # without the list of build options: "OpenCL 3.0 PoCL 3.1"
        memory_bytes=None if is_layer else _read_or_none(lambda: int(device.global_mem_size)),
        compute_units=_read_or_none(lambda: int(device.max_compute_units)),
        pci=_read_opencl_pci(device) if kind == "gpu" else "",
        integrated=kind == "gpu" and bool(_read_or_none(lambda: device.host_unified_memory)),
        prepare=partial(products.prepare_opencl, device),
        has_wrong_loop=partial(products.has_wrong_opencl_loop, device),
    )


def _read_opencl_pci(device: cl.Device) -> str:
    """The PCI address by NVIDIA's extension (cl_nv_device_attribute_query) or by AMD's topology; empty without one."""
    bus, slot = _read_or_none(lambda: device.pci_bus_id_nv), _read_or_none(lambda: device.pci_slot_id_nv) or 0
    domain = _read_or_none(lambda: device.pci_domain_id_nv) or 0
    if bus is not None:
        return f"{domain:04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"  # the slot's low three bits are the function
    place = _read_or_none(lambda: device.topology_amd)
    return f"0000:{place.bus & 0xFF:02x}:{place.device & 0xFF:02x}.{place.function & 7}" if place else ""


def _read_or_none(read: Callable[[], T]) -> T | None:
    """Read a property; None where a driver does not know it, for which each has an error of its own kind."""
    try:
        return read()
    except Exception:
        return None


# ------------------------------------------------------------ each function imports one framework and asks it

Answered = tuple[str, list[Device], str]  # version, devices, remark


def _ask_opencl() -> Answered:
    import pyopencl as cl

    named = bool(os.environ.get("PYOPENCL_CTX"))
    chosen = (_read_or_none(lambda: cl.choose_devices(interactive=False)) if named else None) or []
    platforms, devices, notes = opencl_platforms(), [], []
    for number, (platform, there) in enumerate(platforms):
        described = [describe_opencl(device, f"{number}:{place}") for place, device in enumerate(there)]
        devices += [replace(entry, chosen=device in chosen) for entry, device in zip(described, there, strict=True)]
        if not there:
            notes.append(f"platform {number} ({_read_or_none(lambda p=platform: p.name)}) shows no device")
    if not platforms:
        folder = os.environ.get("OCL_ICD_VENDORS")
        where = f"OCL_ICD_VENDORS is set to {folder}" if folder else "no driver is registered"
        notes.append(f"no OpenCL platform found, {where}")
    return cl.VERSION_TEXT, devices, "; ".join(notes)


def _ask_tensorflow() -> Answered:
    import tensorflow as tf

    vendor = "AMD" if tf.test.is_built_with_rocm() else "NVIDIA" if tf.test.is_built_with_cuda() else ""
    devices = []
    numbers = {device: number for number, device in enumerate(tf.config.list_physical_devices())}
    for device in tf.config.get_visible_devices():  # a lesson may have hidden some
        kind = {"CPU": "cpu", "GPU": "gpu", "XPU": "gpu"}.get(device.device_type, "accelerator")
        details = _read_tensorflow_details(device, numbers[device]) if kind != "cpu" else {}
        name = cpu_name() if kind == "cpu" else tidy(details.get("device_name") or f"unnamed {device.device_type}")
        made_by = vendor if kind == "gpu" else ""
        if kind == "gpu" and sys.platform == "darwin":
            name, made_by = f"{cpu_name()} GPU", "Apple"
        identifier = "/" + device.name.removeprefix("/physical_device:")
        devices.append(
            Device(
                "tensorflow",
                identifier,
                name,
                kind,
                vendor=made_by,
                integrated=looks_integrated(name),
                prepare=partial(products.prepare_tensorflow, identifier),
            )
        )
    return tf.__version__, devices, ""


def _read_tensorflow_details(device: tf.config.PhysicalDevice, number: int) -> dict[str, Any]:
    """Return what TensorFlow knows of a device; the public question fails on "compute capability 12.0a" (2.21)."""
    import tensorflow as tf

    def ask_without_reading() -> dict[str, Any]:
        from tensorflow.python import pywrap_tfe

        return pywrap_tfe.TF_GetDeviceDetails(number)

    return (
        _read_or_none(lambda: tf.config.experimental.get_device_details(device))
        or _read_or_none(ask_without_reading)
        or {}
    )


def _ask_jax() -> Answered:
    import jax

    devices = []
    for device in jax.local_devices():  # with other processes' devices there are more
        # str() gives "cuda:0" or "rocm:0" where `platform` says only "gpu"; for a CPU it gives "TFRT_CPU_0".
        label = str(device) if re.fullmatch(r"[A-Za-z]+:\d+", str(device)) else f"{device.platform}:{device.id}"
        kind = {"cpu": "cpu", "tpu": "accelerator"}.get(device.platform, "gpu")
        vendors = {"cuda": "NVIDIA", "rocm": "AMD", "metal": "Apple", "tpu": "Google"}
        name = cpu_name() if kind == "cpu" else tidy(str(device.device_kind))
        made_by = vendors.get(label.split(":")[0].lower(), "")
        devices.append(
            Device(
                "jax",
                label,
                name,
                kind,
                vendor=made_by,
                memory_bytes=None if kind == "cpu" else _read_or_none(partial(_read_jax_memory, device)),
                integrated=looks_integrated(name),
                prepare=partial(products.prepare_jax, device),
            )
        )
    if devices and devices[0].kind != "cpu":
        for device in _read_or_none(lambda: jax.local_devices(backend="cpu")) or []:
            prepare = partial(products.prepare_jax, device)
            devices.append(Device("jax", f"cpu:{device.id}", cpu_name(), "cpu", prepare=prepare))
    return jax.__version__, devices, ""


def _read_jax_memory(device: jax.Device) -> int:
    """Read how many bytes JAX may use on a device."""
    return int(device.memory_stats()["bytes_limit"])


def _ask_torch() -> Answered:
    import torch

    devices = [Device("torch", "cpu", cpu_name(), "cpu")]
    if torch.cuda.is_available():
        vendor = "AMD" if torch.version.hip else "NVIDIA"
        devices += [_describe_torch_gpu(torch.cuda, "cuda", n, vendor) for n in range(torch.cuda.device_count())]
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        devices += [_describe_torch_gpu(torch.xpu, "xpu", n, "Intel") for n in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        devices.append(Device("torch", "mps", f"{cpu_name()} GPU", "gpu", vendor="Apple"))
    devices = [replace(device, prepare=partial(products.prepare_torch, device.identifier)) for device in devices]
    return torch.__version__, devices, ""


def _describe_torch_gpu(family: ModuleType, label: str, number: int, vendor: str) -> Device:
    known = family.get_device_properties(number)
    units = getattr(known, "multi_processor_count", None) or getattr(known, "gpu_eu_count", None)
    domain, bus, slot = (getattr(known, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    pci = f"{domain or 0:04x}:{bus:02x}:{slot:02x}.0" if isinstance(bus, int) and isinstance(slot, int) else ""
    memory, name = getattr(known, "total_memory", None), tidy(known.name)
    integrated = bool(getattr(known, "is_integrated", False)) or looks_integrated(name)
    return Device("torch", f"{label}:{number}", name, "gpu", vendor, "", memory, units, pci, integrated)


# Parts of ONNX Runtime, its "execution providers": the hardware that each computes on, for people, and its kind.
# https://onnxruntime.ai/docs/execution-providers (November 2026); OpenVINO's is on the processor unless told otherwise.
PROVIDERS = {
    "CUDAExecutionProvider": ("NVIDIA GPUs", "gpu"),
    "MIGraphXExecutionProvider": ("AMD GPUs", "gpu"),
    "OpenVINOExecutionProvider": ("Intel CPUs, GPUs, NPUs", "cpu"),
    "CoreMLExecutionProvider": ("Apple's GPUs and Neural Engine", "accelerator"),
    "DmlExecutionProvider": ("any GPU on Windows", "gpu"),
    "WebGpuExecutionProvider": ("any GPU", "gpu"),
    products.CPU_PROVIDER: ("every processor", "cpu"),
}


def _ask_onnxruntime() -> Answered:
    import onnxruntime as ort

    devices = []
    for name in ort.get_available_providers():
        if name in PROVIDERS:  # Azure's, which is in every package, is no device here
            hardware, kind = PROVIDERS[name]
            called, prepare = cpu_name() if kind == "cpu" else hardware, partial(products.prepare_onnxruntime, name)
            devices.append(Device("onnxruntime", name, called, kind, prepare=prepare))
    return ort.__version__, devices, ""


def _ask_webgpu() -> Answered:
    import wgpu

    from helpers.devices import webgpu

    devices = [webgpu.describe(adapter, str(number)) for number, adapter in enumerate(webgpu.adapters())]
    return wgpu.__version__, devices, "" if devices else webgpu.explain_missing()


class Framework(NamedTuple):
    """A framework that the workshop knows."""

    title: str  # for people
    module: str  # what to import
    install: str  # how to get it
    ask: Callable[[], Answered]


_BY_LAB = f"{WORKSHOP} lab installs it"
_ASKED = {  # for each framework the module, how to get it, and who asks it
    "opencl": ("pyopencl", _BY_LAB, _ask_opencl),
    "tensorflow": ("tensorflow", _BY_LAB, _ask_tensorflow),
    "jax": ("jax", _BY_LAB, _ask_jax),
    "torch": ("torch", f"optional: {WORKSHOP} lab --with torch", _ask_torch),
    "onnxruntime": ("onnxruntime", _BY_LAB, _ask_onnxruntime),
    "webgpu": ("wgpu", _BY_LAB, _ask_webgpu),
}
FRAMEWORKS = {name: Framework(title, *_ASKED[name]) for name, title in TITLES.items()}
MARK = "\x1e"  # ASCII's record separator: no framework writes it
# TensorFlow loads Keras (and with it matplotlib), TensorFlow Lite loads JAX: half of the 7 s, and none
# of it has a say in which devices there are. TensorFlow goes on without either. The rest, its own libraries and device
# plug-ins among it, is loaded as in a lesson, so that a broken plug-in shows here too.
_NOT_LOADED = {"tensorflow": ("keras", "tf_keras", "jax")}


def answer(framework: str) -> None:
    """Answer for one framework on standard output, beside whatever else writes there; for a process of its own.

    Each part is a line of JSON after MARK: the devices, then for each of them, as soon as it is known, what it
    computes.

    Args:
        framework: one of FRAMEWORKS.
    """
    import json

    def tell(part: object) -> None:
        print(f"{MARK}{json.dumps(part)}", flush=True)

    workarounds.refuse_imports(*_NOT_LOADED.get(framework, ()))
    try:
        version, devices, message = FRAMEWORKS[framework].ask()
    except Exception as error:
        tell({"error": f"{type(error).__name__}: {products.take_first_line(error)}"})
        return
    described = [asdict(replace(device, prepare=None, has_wrong_loop=None)) for device in devices]
    tell({"version": str(version), "devices": described, "message": message})
    for device in devices:
        tell(products.prove(device))
