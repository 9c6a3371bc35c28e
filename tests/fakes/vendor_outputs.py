"""What vendors' tools print, old and new, shortened to the lines that matter; each with the place of its format."""

# nvidia-smi: the table, until about driver 600. Format: https://github.com/jax-ml/jax/issues/19213 (470),
# https://github.com/tensorflow/tensorflow/issues/73368 (555).
NVIDIA_SMI_470 = """\
Fri Jan  5 12:37:36 2024
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.129.06   Driver Version: 470.129.06   CUDA Version: 11.8     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
|   0  Tesla V100-PCIE...  On   | 00000001:00:00.0 Off |                  Off |
+-------------------------------+----------------------+----------------------+
"""
NVIDIA_SMI_570 = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
"""
# The table since about driver 600, which no longer says "Driver Version" (posts of 2026-08 and 2026-09 on GitHub with
# drivers 610.43.02 and 610.57.04).
NVIDIA_SMI_610 = """\
Wed Sep 30 21:53:38 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
"""
# Drivers before 510 or so refuse the whole query; the status is 2 or 6.
NO_SUCH_FIELD = 'Field "compute_cap" is not a valid field to query.'
NVIDIA_SMI_FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running."
)
NVIDIA_SMI_MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90"
# /proc/driver/nvidia/version of the closed and of the open kernel module.
NVIDIA_PROC = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"
)
NVIDIA_PROC_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (dvs-builder)\n"

# rocminfo, as in https://github.com/ROCm/legacy-rocm-build/issues/2536 (a laptop with an RX 6700S and the GPU of its
# processor).
_AGENT = """\
*******
Agent {number}
*******
  Name:                    {name:<36}
  Uuid:                    {uuid:<36}
  Marketing Name:          {marketing:<36}
  Vendor Name:             {vendor:<36}
  Feature:                 KERNEL_DISPATCH
  Device Type:             {kind:<36}
  Compute Unit:            28
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--{name}
"""


def rocminfo(*gpus: tuple[str, str]) -> str:
    """rocminfo on a machine with these GPUs: (gfx target, name)."""
    agents = [
        _AGENT.format(number=1, name="AMD Ryzen 7", uuid="CPU-XX", marketing="AMD Ryzen 7", vendor="CPU", kind="CPU")
    ]
    for number, (target, name) in enumerate(gpus, 2):
        values = {"uuid": "GPU-6a1a3f2e8c3f1c0d", "marketing": name, "vendor": "AMD", "kind": "GPU"}
        agents.append(_AGENT.format(number=number, name=target, **values))
    return "ROCk module is loaded\n=====================\nHSA System Attributes\n" + "".join(agents) + "*** Done ***\n"


# amd-smi static --asic --json: a list in ROCm 6, {"gpu_data": a list} in ROCm 7; warnings may stand above
# (https://github.com/ROCm/amdsmi, amdsmi_get_gpu_asic_info: target_graphics_version).
AMD_SMI_6 = '[{"gpu": 0, "asic": {"market_name": "AMD Radeon RX 7600", "target_graphics_version": "gfx1102"}}]'
AMD_SMI_7 = (
    "WARNING: User is missing the following required groups: render, video.\n"
    '{"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Radeon RX 7600", "target_graphics_version": "gfx1102"}}]}'
)

# clinfo of Simon Richter and Giuseppe Bilotta, which distributions have; and AMD's own, of ROCm.
CLINFO = """\
Number of platforms                               1
  Platform Name                                   AMD Accelerated Parallel Processing
  Platform Version                                OpenCL 2.1 AMD-APP.dbg (3649.0)

  Platform Name                                   AMD Accelerated Parallel Processing
Number of devices                                 1
  Device Name                                     gfx1031
  Device Vendor                                   Advanced Micro Devices, Inc.
  Device Type                                     GPU
  Device Board Name (AMD)                         AMD Radeon RX 6700 XT
"""
CLINFO_AMD = """\
Number of platforms:\t\t\t\t 1
  Platform Name:\t\t\t\t AMD Accelerated Parallel Processing
Number of devices:\t\t\t\t 1
  Device Type:\t\t\t\t\t CL_DEVICE_TYPE_GPU
  Vendor ID:\t\t\t\t\t 1002h
  Board name:\t\t\t\t\t AMD Radeon RX 6700 XT
"""
CLINFO_POCL = """\
Number of platforms                               1
  Platform Name                                   Portable Computing Language
Number of devices                                 1
  Device Name                                     cpu-haswell-AMD EPYC
  Device Type                                     CPU
"""

# vulkaninfo --summary, as published with Mesa 25.2 and llvmpipe.
VULKANINFO = """\
Devices:
========
GPU0:
\tapiVersion         = 1.4.318
\tvendorID           = 0x8086
\tdeviceType         = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
\tdeviceName         = Intel(R) Arc(tm) A770 Graphics (DG2)
\tdriverName         = Intel open-source Mesa driver
GPU1:
\tapiVersion         = 1.4.318
\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU
\tdeviceName         = llvmpipe (LLVM 20.1.2, 256 bits)
"""

LDCONFIG = """\
3 libs found in cache `/etc/ld.so.cache'
\tlibpocl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libpocl.so.2
\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6
Cache generated by: ldconfig (Debian GLIBC 2.36-9) stable release version 2.36
"""
DLOPEN = (  # https://github.com/tensorflow/tensorflow/issues/60646 and 63362, as helpers.compute.devices hands it on
    "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly "
    "if "
    "you would like to use GPU. Skipping registering GPU devices..."
)
RUBBISH = '\0\ufffd<<< not, a, table >>>\n\n,,,,\n{["gpu_data": \nAgent 7\n*** \n'
