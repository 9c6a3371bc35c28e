"""Describe this machine for a record: its GPU, the driver, the packages that compute."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata

from helpers.devices import opencl
from helpers.devices.host import cpu_name, has_module, usable_cpus
from helpers.errors import WorkshopError
from helpers.measure.records import Machine, find_hardware

PACKAGES = (
    *("numpy", "pyopencl", "pocl-binary-distribution", "intel-opencl-rt", "jax", "jaxlib", "torch", "tensorflow"),
    *("tensorflow-cpu", "keras", "wgpu", "onnxruntime", "onnxruntime-gpu", "openvino"),
)


def describe_machine(use_opencl: bool = True) -> Machine:
    """Return the lessons' OpenCL device, without one the GPU that `nvidia-smi` lists, otherwise the processor.

    Args:
        use_opencl: False where OpenCL's driver was found to hang or to crash.
    """
    system = f"{platform.system()} {platform.machine()}, {cpu_name()}, {usable_cpus():g} cores"
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    device, kind, driver = _find_device(use_opencl)
    return Machine(device, kind, driver, system, versions)


def _find_device(use_opencl: bool) -> tuple[str, str, str]:
    """Return the name, the kind and the driver's version of what the lessons compute on."""
    if use_opencl and has_module("pyopencl"):
        try:
            device = opencl.pick_device()
        except WorkshopError:
            pass  # no driver, or none that computes right: the frameworks may still have a GPU
        else:
            name, kind = opencl.name(device), opencl.kind(device)
            return find_hardware(name) if kind == "gpu" else name, kind, str(device.driver_version)
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        listed = []
    if listed and listed[0].count(", ") == 1:
        device, driver = listed[0].split(", ")
        return device, "gpu", driver
    return cpu_name(), "cpu", ""
