"""Machines of every kind with nothing wrong: the doctor must not find anything on them."""

from fakes import machines
from fakes import vendor_outputs as prints

from helpers.doctor import facts


def cpu_only(machine):
    machine.tool("clinfo", prints.CLINFO_POCL)
    machine.tool("ldconfig", prints.LDCONFIG)
    machine.file("etc/OpenCL/vendors/pocl.icd", "libpocl.so.2\n")


def cpu_only_with_a_library_beside_the_cache(machine):
    machine.tool("ldconfig", prints.LDCONFIG.replace("libpocl", "libother"))
    machine.file("etc/OpenCL/vendors/pocl.icd", "libpocl.so.2\n")
    machines.fake_library(machine.root, "libpocl.so.2")


def a_slow_processor(machine):
    machine.keras = facts.Said("timed out", error="9")


def nvidia_on_linux(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.torch = "cuda 12.6"
    machine.lists("torch", "NVIDIA GeForce RTX 3060")


def nvidia_with_a_new_driver_and_pytorch_alone(machine):
    machine.nvidia("NVIDIA GeForce RTX 5090", "610.57.04", "12.0")
    machine.tool(
        "nvidia-smi", prints.NVIDIA_SMI_610, special=[("query", "NVIDIA GeForce RTX 5090, 610.57.04, 12.0", 0)]
    )
    machine.torch = "cuda 13.2"
    machine.set(KERAS_BACKEND="torch", CUDA_VISIBLE_DEVICES="0")
    machine.lists("torch", "NVIDIA GeForce RTX 5090")


def a_data_centre_gpu_in_a_container(machine):
    machine.nvidia("NVIDIA H100 80GB HBM3", "550.90.07", "9.0")
    machine.cuda_family("NVIDIA H100 80GB HBM3")
    machine.is_a(container=True)


def a_minor_version_that_the_builds_code_covers(machine):
    machine.nvidia("NVIDIA GB10", "580.95.05", "12.1")
    machine.torch = "cuda 12.8"
    machine.set(KERAS_BACKEND="torch")
    machine.lists("torch", "NVIDIA GB10")


def a_container_whose_nvidia_smi_answers(machine):
    a_data_centre_gpu_in_a_container(machine)
    (machine.root / "dev/nvidiactl").unlink()
    (machine.root / "dev/nvidia0").unlink()
    (machine.root / "sys/bus/pci/devices/0000:00:00.0/class").unlink()


def amd_on_linux(machine):
    machine.amd()
    machine.rocm_torch()


def an_rx_6600_xt_with_amds_packages(machine):
    machine.amd(("gfx1032", "AMD Radeon RX 6600 XT"))
    machine.rocm_torch("gfx1032", "AMD Radeon RX 6600 XT")


def a_card_before_the_processors_gpu(machine):
    machine.amd(("gfx1100", "AMD Radeon RX 7900 XT"), ("gfx1036", "AMD Radeon Graphics"))
    machine.rocm_torch()


def an_override_that_fits(machine):
    machine.amd(("gfx1031", "AMD Radeon RX 6700 XT"))
    machine.rocm_torch("gfx1030", "AMD Radeon RX 6700 XT")
    machine.without("amd-torch-device-gfx1030")
    machine.set(HSA_OVERRIDE_GFX_VERSION="10.3.0", ROCR_VISIBLE_DEVICES="0")


def a_laptop_with_a_ryzen(machine):
    machine.amd(("gfx1035", "AMD Radeon Graphics"), groups="")
    (machine.bin / "rocminfo").unlink()
    machine.groups = frozenset({1000})


def apple_silicon(machine):
    machine.mac()
    machine.metal_family()


def apple_silicon_with_tensorflow_metal(machine):
    machine.mac()
    machine.metal_family()
    machine.set(KERAS_BACKEND="tensorflow")
    machine.lists("tensorflow", "Apple M4 GPU")


def an_intel_mac(machine):
    machine.mac("x86_64")
    machine.packages["tensorflow"] = "2.16.2"
    machine.tool("sysctl", "", status=1, error="sysctl: unknown oid 'sysctl.proc_translated'")


def windows_with_pytorch(machine):
    machine.windows("NVIDIA GeForce RTX 4080")
    machine.torch = "cuda 12.6"
    machine.set(KERAS_BACKEND="torch")
    machine.tool("nvidia-smi", prints.NVIDIA_SMI_570, special=[("query", "NVIDIA GeForce RTX 4080, 570.86.15, 8.9", 0)])
    machine.lists("torch", "NVIDIA GeForce RTX 4080")


def windows_without_a_gpu(machine):
    machine.windows("Microsoft Basic Display Adapter")


def wsl_with_cuda(machine):
    machine.nvidia(driver="561.17")
    machine.cuda_family()
    machine.wsl()


def wsl_without_a_gpu(machine):
    machine.is_a(wsl=True)
    machine.file("proc/sys/kernel/osrelease", "5.15.146.1-microsoft-standard-WSL2\n")


def an_intel_gpu_with_its_driver(machine):
    machine.card("8086")
    machine.file("dev/dri/renderD128", mode=0o666)
    machine.tool("vulkaninfo", prints.VULKANINFO)
    machine.lists("opencl", "Intel Arc A770")


def colab_with_a_gpu(machine):
    machine.nvidia("Tesla T4", "550.54.15", "7.5")
    machine.is_a(hosted="colab", installed_by="own", container=True)
    machine.without("tensorflow-cpu")
    machine.packages |= {"tensorflow": "2.20.0", "jax-cuda12-plugin": "0.7.2"}
    machine.torch = "cuda 12.8"
    machine.lists("opencl")
    for name in ("tensorflow", "jax", "torch"):
        machine.lists(name, "Tesla T4")


def colab_with_a_tpu(machine):
    machine.is_a(hosted="colab", installed_by="own", container=True)
    machine.file("dev/accel0")


def kaggle_with_a_gpu(machine):
    colab_with_a_gpu(machine)
    machine.is_a(hosted="kaggle")


def a_container_on_a_machine_without_a_gpu(machine):
    machine.is_a(container=True)


def binder(machine):
    machine.is_a(installed_by="binder", container=True)


HEALTHY = [
    a_slow_processor, a_container_whose_nvidia_smi_answers, a_minor_version_that_the_builds_code_covers,
    cpu_only, cpu_only_with_a_library_beside_the_cache, nvidia_on_linux, nvidia_with_a_new_driver_and_pytorch_alone,
    a_data_centre_gpu_in_a_container, amd_on_linux, an_rx_6600_xt_with_amds_packages, a_card_before_the_processors_gpu,
    an_override_that_fits, a_laptop_with_a_ryzen, apple_silicon, apple_silicon_with_tensorflow_metal, an_intel_mac,
    windows_with_pytorch, windows_without_a_gpu, wsl_with_cuda, wsl_without_a_gpu, an_intel_gpu_with_its_driver,
    colab_with_a_gpu, colab_with_a_tpu, kaggle_with_a_gpu, a_container_on_a_machine_without_a_gpu, binder,
]  # fmt: skip
