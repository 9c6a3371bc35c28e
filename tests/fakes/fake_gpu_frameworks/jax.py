"""Stands in for JAX on a machine with an NVIDIA GPU."""

from types import SimpleNamespace

import fates

__version__ = "0.10.2"


class _Device:
    def __init__(self, platform, label, kind, number=0):
        self.platform, self.label, self.device_kind, self.id = platform, label, kind, number

    def __str__(self):
        return self.label


def local_devices(backend=None):
    if backend == "cpu":
        return [_Device("cpu", "TFRT_CPU_0", "cpu")]
    return [_Device("gpu", "cuda:0", "NVIDIA H200")]


def device_put(values, device):
    return values, device


numpy = SimpleNamespace(matmul=lambda a, b: fates.product(a[1].label, a[0], b[0]))
