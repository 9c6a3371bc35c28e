"""Stands in for PyOpenCL: rusticl without a device, AMD GPUs, NVIDIA GPUs (one cannot compile), a broken driver."""

from types import SimpleNamespace

import fates

VERSION_TEXT = "2026.1.4"


class Error(Exception):
    pass


class CompilerWarning(UserWarning):
    pass


class Context:
    def __init__(self, devices):
        self.devices = devices


class Program:
    def __init__(self, context, source):
        self.context = context

    def build(self, options=()):
        if any(device is _too_new for device in self.context.devices):
            raise Error("clBuildProgram failed\n\nerror: unknown target\n(options: )")


class CommandQueue:
    def __init__(self, context):
        self.device = context.devices[0]


class Buffer:
    def __init__(self, context, flags, size=0, hostbuf=None):
        self.values = hostbuf


class Kernel:
    def __init__(self, program, name):
        self.name = name

    def get_work_group_info(self, what, device):
        return 1024

    def __call__(self, queue, shape, group, *arguments):
        if self.name == "product":
            a, b, c, _ = arguments
            c.values = fates.product(queue.device.name, a.values, b.values)
        else:
            x, out = arguments
            out.values = x.values.sum(keepdims=True)


def enqueue_copy(queue, result, source):
    result[...] = source.values


kernel_work_group_info = SimpleNamespace(WORK_GROUP_SIZE=0x11B0)
mem_flags = SimpleNamespace(READ_ONLY=4, WRITE_ONLY=2, COPY_HOST_PTR=32)
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
_too_new = SimpleNamespace(name="NVIDIA GeForce RTX 6090", vendor="NVIDIA Corporation", **_ID)


def _raise():
    raise Error("clGetDeviceIDs failed: DEVICE_NOT_FOUND")


def _platform(name, version, devices):
    platform = SimpleNamespace(name=name, version=version, get_devices=devices)
    for device in (_amd, _nvidia, _too_new):
        if devices is not _raise and device in devices():
            device.platform = platform
    return platform


def get_platforms():
    return [
        _platform("rusticl", "OpenCL 3.0 ", list),
        _platform("AMD Accelerated Parallel Processing", "OpenCL 2.1 AMD-APP (3608.0)", lambda: [_amd, _amd]),
        _platform("NVIDIA CUDA", "OpenCL 3.0 CUDA 12.4.131", lambda: [_nvidia, _too_new]),
        _platform("broken", "OpenCL 1.2", _raise),
    ]
