"""Stands in for PyTorch on a machine with two NVIDIA GPUs."""

from types import SimpleNamespace

__version__ = "2.15.0+cu132"
version = SimpleNamespace(hip=None, cuda="13.2")
cuda = SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 2,
    get_device_properties=lambda n: SimpleNamespace(
        name="NVIDIA H200",
        total_memory=150 * 2**30,
        multi_processor_count=132,
        pci_domain_id=0,
        pci_bus_id=0x2F + n,
        pci_device_id=0,
    ),
)
backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False))
