"""Stands in for JAX on a machine with an NVIDIA GPU."""

__version__ = "0.10.2"


class _Device:
    def __init__(self, platform, label, kind, number=0):
        self.platform, self.label, self.device_kind, self.id = platform, label, kind, number

    def __str__(self):
        return self.label


def devices(platform=None):
    if platform == "cpu":
        return [_Device("cpu", "TFRT_CPU_0", "cpu")]
    return [_Device("gpu", "cuda:0", "NVIDIA H200")]
