"""Stands in for PyOpenCL on a machine with rusticl (no device), an AMD GPU, an NVIDIA GPU, and a driver that raises."""

from types import SimpleNamespace

VERSION_TEXT = "2026.1.4"


class Error(Exception):
    pass


device_type = SimpleNamespace(CPU=2, GPU=4, ACCELERATOR=8)
_ID = {"type": 4, "global_mem_size": 8 * 2**30, "max_compute_units": 32}
_amd = SimpleNamespace(
    name="gfx1032",
    board_name_amd="AMD Radeon RX 6600 XT",
    vendor="Advanced Micro Devices, Inc.",
    topology_amd=SimpleNamespace(bus=0x2F, device=0, function=0),
    **_ID,
)
_nvidia = SimpleNamespace(
    name="NVIDIA GeForce RTX 4090", vendor="NVIDIA Corporation", pci_bus_id_nv=1, pci_slot_id_nv=0, **_ID
)


def _raise():
    raise Error("clGetDeviceIDs failed: DEVICE_NOT_FOUND")


def _platform(name, version, devices):
    return SimpleNamespace(name=name, version=version, get_devices=devices)


def get_platforms():
    return [
        _platform("rusticl", "OpenCL 3.0 ", list),
        _platform("AMD Accelerated Parallel Processing", "OpenCL 2.1 AMD-APP (3608.0)", lambda: [_amd, _amd]),
        _platform("NVIDIA CUDA", "OpenCL 3.0 CUDA 12.4.131", lambda: [_nvidia]),
        _platform("broken", "OpenCL 1.2", _raise),
    ]
