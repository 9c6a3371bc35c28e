"""What breaks a machine: functions that provoke each failure the doctor knows, on a `machines.Machine`."""

import dataclasses
import os

from fakes import vendor_outputs as prints

from helpers.compute.devices import Device
from helpers.compute.products import FELL_BACK
from helpers.doctor import facts, packages, windows
from helpers.doctor.facts import Proof

CASES = {}  # the failure's id: functions that provoke it
ALLOWED = {}  # what the doctor may find besides, by the function's name


def provokes(name, *allowed):
    def remember(function):
        CASES.setdefault(name, []).append(function)
        ALLOWED[function.__name__] = {name, *allowed}
        return function

    return remember


# ------------------------------------------------------------ NVIDIA


@provokes("nvidia-no-driver")
def a_card_without_its_driver(machine):
    machine.card("10de")


@provokes("nvidia-driver-fails")
def a_driver_that_does_not_fit_the_kernel(machine):
    machine.nvidia()
    machine.tool("nvidia-smi", prints.NVIDIA_SMI_FAILED, status=9)
    machine.lists("opencl")


@provokes("nvidia-driver-fails")
def a_driver_updated_under_a_running_system(machine):
    machine.nvidia()
    machine.tool("nvidia-smi", status=18, error=prints.NVIDIA_SMI_MISMATCH)


@provokes("nvidia-driver-too-old")
def a_driver_older_than_tensorflow_and_jax(machine):
    machine.nvidia("Tesla V100-PCIE-16GB", "470.129.06", None)
    machine.cuda_family()
    machine.lists("tensorflow"), machine.lists("jax")


@provokes("nvidia-driver-too-old")
def a_driver_older_than_cuda_13(machine):
    machine.nvidia(driver="570.86.15")
    machine.cuda_family()
    machine.without("jax-cuda12-plugin")
    machine.packages["jax-cuda13-plugin"] = "0.12.0.1"
    machine.lists("jax")


@provokes("nvidia-driver-too-old")
def a_driver_too_old_before_the_download(machine):
    machine.nvidia(driver="470.129.06")


@provokes("nvidia-driver-too-old")
def a_windows_driver_too_old_in_wsl(machine):
    machine.nvidia(driver="527.41")
    machine.cuda_family()
    machine.wsl()


@provokes("nvidia-capability")
def a_p100_on_kaggle(machine):
    machine.nvidia("Tesla P100-PCIE-16GB", "560.35.03", "6.0")
    machine.cuda_family("Tesla P100-PCIE-16GB")
    machine.is_a(hosted="kaggle", installed_by="own", container=True)
    machine.torch = "cuda 12.8"
    machine.lists("torch", "Tesla P100-PCIE-16GB")


@provokes("nvidia-capability")
def a_gtx_1080_with_cuda_13(machine):
    machine.nvidia("NVIDIA GeForce GTX 1080", "580.65.06", "6.1")
    machine.torch = "cuda 13.2"
    machine.set(KERAS_BACKEND="torch")
    machine.lists("torch", "NVIDIA GeForce GTX 1080")


@provokes("nvidia-capability")
def a_gtx_970_with_tensorflow_by_its_name_alone(machine):
    machine.nvidia("GeForce GTX 970", "535.183.01", None)  # a driver that does not tell the capability
    machine.cuda_family("GeForce GTX 970")


@provokes("nvidia-capability", "nvidia-rtx50-tensorflow")
def an_rtx_50_with_the_workshops_pytorch(machine):
    machine.nvidia("NVIDIA GeForce RTX 5070", "575.51.02", "12.0")
    machine.cuda_family("NVIDIA GeForce RTX 5070")
    machine.torch = "cuda 12.6"
    machine.lists("torch", "NVIDIA GeForce RTX 5070")


@provokes("nvidia-rtx50-tensorflow")
def an_rtx_50_with_tensorflow(machine):
    machine.nvidia("NVIDIA GeForce RTX 5090", "575.51.02", "12.0")
    machine.cuda_family("NVIDIA GeForce RTX 5090")
    machine.set(KERAS_BACKEND="tensorflow")


@provokes("nvidia-hidden")
def hidden_by_cuda_visible_devices(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.lists("tensorflow"), machine.lists("jax")
    machine.set(CUDA_VISIBLE_DEVICES="-1")


@provokes("nvidia-hidden")
def hidden_by_a_number_that_does_not_exist(machine):
    machine.nvidia(many=2)
    machine.cuda_family()
    machine.set(CUDA_VISIBLE_DEVICES="2,0")


@provokes("nvidia-no-libraries")
def plain_tensorflow_without_its_libraries(machine):
    machine.nvidia()
    machine.without("tensorflow-cpu")
    machine.packages["tensorflow"] = "2.21.0"
    machine.lists("tensorflow", message=prints.DLOPEN)


@provokes("nvidia-libraries")
def and_cuda_that_does_not_find_its_libraries(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.lists("tensorflow", message=prints.DLOPEN)
    machine.set(LD_LIBRARY_PATH="/usr/local/cuda-11.8/lib64")


@provokes("nvidia-not-listed")
def an_empty_list_without_a_known_cause(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.lists("jax", message="Unable to initialize backend 'cuda': CUDA_ERROR_UNKNOWN")


@provokes("nvidia-cpu-build")
def processors_tensorflow_on_a_gpu_machine(machine):
    machine.nvidia()


@provokes("nvidia-cpu-build")
def processors_jax_on_a_gpu_machine(machine):
    machine.nvidia()
    machine.set(KERAS_BACKEND="jax")
    machine.lists("jax", message="An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not "
                  "installed. Falling back to cpu.")  # fmt: skip


@provokes("nvidia-cpu-build")
def processors_pytorch_on_a_gpu_machine(machine):
    machine.nvidia()
    machine.torch = "cpu"
    machine.set(KERAS_BACKEND="torch")
    machine.lists("torch")


# ------------------------------------------------------------ AMD


@provokes("amd-no-kfd", "opencl-gpu-missing")
def a_radeon_without_kfd(machine):
    machine.card("1002")


@provokes("amd-groups")
def not_in_the_group_render(machine):
    machine.amd(groups="")
    machine.rocm_torch()
    machine.tool("rocminfo", "Unable to open /dev/kfd read-write: Permission denied", status=1)
    machine.lists("torch"), machine.lists("opencl")


@provokes("amd-groups", "amd-cpu-build")
def in_the_group_from_the_next_login_on(machine):
    machine.amd(groups="")
    machine.file("etc/group", f"root:x:0:\nrender:x:{os.getgid()}:learner\n")


@provokes("amd-target-unsupported")
def a_polaris(machine):
    machine.amd(("gfx803", "AMD Radeon RX 580"))


@provokes("amd-target-unofficial", "amd-cpu-build")
def an_rx_6600_xt(machine):
    machine.amd(("gfx1032", "AMD Radeon RX 6600 XT"))


@provokes("amd-target-unofficial")
def an_rx_5700_xt_which_has_no_sibling(machine):
    machine.amd(("gfx1010", "AMD Radeon RX 5700 XT"))


@provokes("amd-override")
def an_override_for_another_generation(machine):
    machine.amd(("gfx1102", "AMD Radeon RX 7600"))
    machine.rocm_torch("gfx1102", "AMD Radeon RX 7600")
    machine.set(HSA_OVERRIDE_GFX_VERSION="10.3.0")


@provokes("amd-override", "windows-tensorflow")
def an_override_on_windows(machine):
    machine.windows("AMD Radeon RX 6600 XT")
    machine.set(HSA_OVERRIDE_GFX_VERSION="10.3.0")


@provokes("amd-torch-kernels")
def pytorch_without_the_part_for_an_rx_7600(machine):
    machine.amd(("gfx1102", "AMD Radeon RX 7600"))
    machine.rocm_torch("gfx1100", "AMD Radeon RX 7600")


@provokes("amd-tensorflow-pypi")
def tensorflow_rocm_from_pypi(machine):
    machine.amd()
    machine.without("tensorflow-cpu")
    machine.packages["tensorflow-rocm"] = "2.14.0.600"
    machine.lists("tensorflow")


@provokes("amd-tensorflow-target", "amd-target-unofficial")
def amds_tensorflow_on_an_rx_6600_xt(machine):
    machine.amd(("gfx1032", "AMD Radeon RX 6600 XT"))
    machine.without("tensorflow-cpu")
    machine.packages["tensorflow-rocm"] = "2.21.0+rocm10.1.0"
    machine.lists("tensorflow")


@provokes("amd-jax-plugin")
def a_jaxlib_that_does_not_know_rocm_10(machine):
    machine.amd()
    machine.packages |= {"jax-rocm10-plugin": "0.12.0", "jaxlib": "0.10.2", "jax": "0.10.2"}
    machine.set(KERAS_BACKEND="jax")
    machine.lists("jax")


@provokes("amd-hidden")
def hidden_by_hip_visible_devices(machine):
    machine.amd()
    machine.rocm_torch()
    machine.lists("torch")
    machine.set(HIP_VISIBLE_DEVICES="-1")


@provokes("amd-hidden")
def hidden_by_rocr_visible_devices(machine):
    machine.amd()
    machine.rocm_torch()
    machine.lists("torch")
    machine.tool("rocminfo", prints.rocminfo())
    machine.set(ROCR_VISIBLE_DEVICES="7")


@provokes("amd-hidden")
def hidden_by_two_variables_together(machine):
    machine.amd(("gfx1100", "AMD Radeon RX 7900 XTX"), ("gfx1100", "AMD Radeon RX 7900 XTX"))
    machine.rocm_torch()
    machine.lists("torch")
    machine.set(ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1")


@provokes("amd-libraries")
def rocms_libraries_that_nobody_finds(machine):
    machine.amd()
    machine.without("tensorflow-cpu")
    machine.packages["tensorflow-rocm"] = "2.21.0+rocm10.1.0"
    machine.fails(
        "tensorflow", "ImportError: libhipsparse.so.4: cannot open shared object file: No such file or directory"
    )


@provokes("amd-integrated-first")
def the_processors_gpu_before_the_card(machine):
    machine.amd(("gfx1036", "AMD Radeon Graphics"), ("gfx1201", "AMD Radeon RX 9070 XT"))
    machine.rocm_torch("gfx1201", "AMD Radeon Graphics")


@provokes("amd-integrated-first")
def the_processors_gpu_before_the_card_on_windows(machine):
    machine.windows("AMD Radeon(TM) Graphics", "AMD Radeon RX 9070 XT")
    machine.torch = "hip 7.2"
    machine.set(KERAS_BACKEND="torch")
    machine.lists("torch", "AMD Radeon(TM) Graphics", "AMD Radeon RX 9070 XT")


@provokes("amd-cpu-build")
def processors_packages_on_a_radeon(machine):
    machine.amd()


@provokes("amd-wsl")
def rocm_in_wsl_that_was_not_told_to_look(machine):
    machine.wsl()
    machine.rocm_torch()
    machine.lists("torch")


@provokes("amd-not-listed")
def a_radeon_that_is_not_listed_without_a_known_cause(machine):
    machine.amd()
    machine.rocm_torch()
    machine.lists("torch")


# ------------------------------------------------------------ Apple


@provokes("apple-rosetta")
def a_python_for_intel_on_an_apple_processor(machine):
    machine.mac("x86_64")
    machine.packages["tensorflow"] = "2.16.2"
    machine.tool("sysctl", "1")


@provokes("apple-metal-breaks-tensorflow")
def metal_with_tensorflow_2_20(machine):
    machine.mac()
    machine.packages |= {"tensorflow": "2.20.0", "tensorflow-metal": "1.2.0"}
    machine.fails("tensorflow", "NotFoundError: dlopen(libmetal_plugin.dylib, 0x0006): Library not loaded: "
                  "@rpath/_pywrap_tensorflow_internal.so")  # fmt: skip


@provokes("apple-metal-breaks-tensorflow")
def old_metal_with_tensorflow_2_18(machine):
    machine.mac()
    machine.packages |= {"tensorflow": "2.18.0", "tensorflow-metal": "1.1.0"}
    machine.fails("tensorflow", "NotFoundError: dlopen(...): Symbol not found: __ZN3tsl8internal10LogMessageC1EPKcii")


@provokes("apple-jax-metal")
def an_installed_jax_metal(machine):
    machine.mac()
    machine.metal_family()
    machine.packages |= {"jax": "0.10.2", "jax-metal": "0.1.1"}
    machine.fails("jax", "XlaRuntimeError: UNIMPLEMENTED: default_memory_space is not supported.")


@provokes("apple-cpu-build")
def tensorflow_without_metal(machine):
    machine.mac()


# ------------------------------------------------------------ Windows and WSL


@provokes("windows-tensorflow")
def tensorflow_on_windows_with_an_rtx_4080(machine):
    machine.windows("NVIDIA GeForce RTX 4080", "Microsoft Basic Display Adapter")


@provokes("windows-tensorflow")
def tensorflow_on_windows_with_an_rx_6600_xt(machine):
    machine.windows("AMD Radeon RX 6600 XT", "AMD Radeon(TM) Graphics")


@provokes("windows-torch-cpu")
def pytorch_for_processors_on_windows(machine):
    machine.windows("NVIDIA GeForce RTX 4080")
    machine.torch = "cpu"
    machine.set(KERAS_BACKEND="torch")
    machine.lists("torch")


@provokes("windows-directml", "windows-tensorflow")
def the_dead_directml_plugin(machine):
    machine.windows("AMD Radeon RX 6600 XT")
    machine.packages["tensorflow-directml-plugin"] = "0.4.0.dev230202"


@provokes("windows-runtime")
def windows_without_visual_c(machine):
    machine.windows()
    (machine.root / "Windows/System32/msvcp140_1.dll").unlink()
    machine.fails("tensorflow", "ImportError: Could not find the DLL(s) 'msvcp140_1.dll'.")


@provokes("windows-long-paths")
def a_deep_folder_on_windows(machine):
    machine.windows()
    machine.tool("reg", "    LongPathsEnabled    REG_DWORD    0x0")
    deep = "C:\\Users\\somebody\\Documents\\University\\Third year\\Graphics processors\\any-gpu-workshop"
    machine.monkeypatch.setattr(windows.long_paths, "__defaults__", (deep,))


@provokes("windows-wsl1")
def the_first_wsl(machine):
    machine.is_a(wsl=True)
    machine.file("proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft\n")


@provokes("windows-wsl-driver")
def wsl_without_the_drivers_library(machine):
    machine.wsl()
    machine.cuda_family()
    machine.lists("tensorflow"), machine.lists("jax")
    (machine.root / "usr/lib/wsl/lib/libcuda.so.1").unlink()


@provokes("windows-wsl-opencl")
def wsl_where_opencl_misses_the_gpu(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.wsl()
    machine.lists("opencl")


# ------------------------------------------------------------ Machines of others


@provokes("hosted-colab-cpu")
def colab_on_a_processor(machine):
    machine.is_a(hosted="colab", installed_by="own", container=True)


@provokes("hosted-kaggle-cpu")
def kaggle_on_a_processor(machine):
    machine.is_a(hosted="kaggle", installed_by="own", container=True)


@provokes("hosted-container")
def a_container_without_the_gpu(machine):
    machine.is_a(container=True)
    machine.card("10de")
    machine.file("proc/driver/nvidia/version", prints.NVIDIA_PROC.format(driver="550.54.15"))  # the machine's own


@provokes("hosted-container")
def a_container_without_kfd(machine):
    machine.is_a(container=True)
    machine.card("1002")


# ------------------------------------------------------------ The processor and the packages


@provokes("host-no-avx")
def a_processor_without_avx(machine):
    machine.file("proc/cpuinfo", "flags\t\t: fpu sse sse2 ssse3 sse4_1\n")
    machine.fails("tensorflow", "the process was ended by SIGILL, without an answer")


@provokes("host-no-avx")
def a_windows_processor_without_avx(machine):
    machine.windows()
    (machine.root / "proc/cpuinfo").unlink()
    machine.fails("tensorflow", "the process ended with status 3221225501, without an answer")


@provokes("packages-two-flavours")
def two_flavours_of_tensorflow(machine):
    machine.packages["tensorflow"] = "2.21.0"
    site = machine.root / "site"
    for name in ("tensorflow", "tensorflow_cpu"):
        (site / f"{name}-2.21.0.dist-info").mkdir(parents=True)
        info = site / f"{name}-2.21.0.dist-info"
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 2.21.0\n")
        (info / "RECORD").write_text("tensorflow/__init__.py,,\ntensorflow/libtensorflow_cc.so.2,,\nLICENSE,,\n")
    machine.monkeypatch.setattr(packages.flavours, "__defaults__", (site,))


@provokes("packages-import-fails")
def a_framework_that_cannot_be_imported(machine):
    machine.fails("tensorflow", "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory")


@provokes("packages-import-hangs")
def a_framework_that_hangs(machine):
    machine.fails("jax", "no answer within 15 s", "timed out")


# ------------------------------------------------------------ OpenCL


@provokes("opencl-filenames-ignored")
def a_variable_of_khronos_loader(machine):
    machine.set(OCL_ICD_FILENAMES="/opt/driver/libdriver.so")


@provokes("opencl-icd-without-library")
def what_apt_remove_leaves_behind(machine):
    machine.tool("ldconfig", prints.LDCONFIG.replace("libpocl.so.2", "libother.so.2"))
    machine.file("etc/OpenCL/vendors/pocl.icd", "libpocl.so.2\n")


@provokes("opencl-icd-without-library")
def an_icd_with_a_path_that_is_gone(machine):
    machine.file("etc/OpenCL/vendors/intel64.icd", "/opt/anaconda1anaconda2anaconda3/lib/libintelocl.so\n")


@provokes("opencl-render-group")
def an_intel_gpu_that_may_not_be_opened(machine):
    machine.card("8086")
    machine.file("dev/dri/renderD128", mode=0o660)


@provokes("opencl-other-loader")
def a_gpu_that_only_clinfo_sees(machine):
    machine.tool("clinfo", prints.CLINFO)


@provokes("opencl-gpu-missing")
def an_arc_without_its_opencl_driver(machine):
    machine.card("8086")
    machine.file("dev/dri/renderD128", mode=0o666)
    machine.tool("vulkaninfo", prints.VULKANINFO)


@provokes("opencl-gpu-missing", "windows-tensorflow")
def a_radeon_on_windows_without_its_driver(machine):
    machine.windows("AMD Radeon RX 6600 XT")
    machine.lists("opencl")


@provokes("opencl-gpu-missing")
def a_container_with_an_nvidia_gpu_that_opencl_does_not_know(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.is_a(container=True)
    machine.lists("opencl")


@provokes("opencl-hidden")
def a_folder_of_drivers_that_is_empty(machine):
    machine.set(OCL_ICD_VENDORS="/empty")
    machine.lists("opencl")
    machine.answers[facts.WITHOUT_LOADER_VARIABLES] = machine.answers["opencl"]
    machine.answers["opencl"] = dataclasses.replace(machine.answers["opencl"], devices=())


@provokes("opencl-hangs")
def a_driver_that_hangs(machine):
    machine.fails("opencl", "no answer within 15 s", "timed out")


def old_pocl():
    """What `devices.ask` says of a PoCL whose compiler does not know the processor."""
    refusal = "failed: it cannot compile: error: unknown target CPU 'generic'"
    return Device("opencl", "1:0", "AMD EPYC", "cpu", version="OpenCL 3.0 PoCL 3.0-rc2", computes=refusal)


@provokes("opencl-cannot-compile")
def a_compiler_older_than_the_processor(machine):
    machine.answers["opencl"] = dataclasses.replace(machine.answers["opencl"], devices=(old_pocl(),))


@provokes("opencl-one-cannot-compile")
def one_compiler_of_two_older_than_the_processor(machine):
    there = machine.answers["opencl"].devices
    machine.answers["opencl"] = dataclasses.replace(machine.answers["opencl"], devices=(*there, old_pocl()))


@provokes("opencl-no-device")
def no_opencl_driver(machine):
    message = "no OpenCL platform found, no driver is registered (PLATFORM_NOT_FOUND_KHR)"
    machine.answers["opencl"] = dataclasses.replace(machine.answers["opencl"], devices=(), message=message)


@provokes("opencl-rusticl")
def rusticl_hidden(machine):
    message = "platform 0 (rusticl) shows no device"
    machine.answers["opencl"] = dataclasses.replace(machine.answers["opencl"], devices=(), message=message)


# ------------------------------------------------------------ Keras, and devices that do not compute


@provokes("keras-does-not-start")
def keras_without_one_of_its_packages(machine):
    machine.keras = facts.Said("failed", "import", "ModuleNotFoundError: No module named 'h5py'")


@provokes("keras-hangs")
def a_first_operation_that_never_ends(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.keras = facts.Said("timed out", error="11")


@provokes("devices-fails")
def a_first_operation_that_fails(machine):
    machine.keras = facts.Said("failed", "first operation", "InternalError: cudaGetErrorString symbol not found.")


@provokes("keras-preallocate-misread")
def preallocate_in_other_words(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.set(XLA_PYTHON_CLIENT_PREALLOCATE="FALSE")


@provokes("keras-preallocate-not-read")
def preallocate_while_tensorflow_computes(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.set(XLA_PYTHON_CLIENT_PREALLOCATE="false", KERAS_BACKEND="tensorflow")


@provokes("keras-two-fractions")
def both_names_of_the_fraction(machine):
    machine.nvidia()
    machine.cuda_family()
    machine.set(XLA_CLIENT_MEM_FRACTION=".5", XLA_PYTHON_CLIENT_MEM_FRACTION=".5")


@provokes("devices-wrong")
def metal_that_computes_wrongly(machine):
    machine.mac()
    machine.metal_family()
    machine.proofs = (Proof("torch", "Apple M4 GPU", "wrong", "by up to 0.71"), Proof("torch", "Apple M4", "right"))


@provokes("devices-driver")
def a_driver_older_than_the_compiled_code(machine):
    machine.nvidia("Tesla T4", "550.54.15", "7.5")
    machine.cuda_family("Tesla T4")
    reason = "[222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    machine.proofs = (Proof("jax", "Tesla T4", "failed", reason),)


@provokes("devices-no-code")
def a_gpu_without_code_of_which_nothing_else_is_known(machine):
    machine.proofs = (Proof("torch", "Tesla P100", "failed", "CUDA error: no kernel image is available for execution"),)


@provokes("devices-no-amd-code")
def a_radeon_without_code(machine):
    machine.proofs = (
        Proof("torch", "AMD Radeon RX 7600", "failed", "HIP error: invalid device function\nCompile with"),
    )


@provokes("devices-no-amd-code")
def a_radeon_without_code_on_windows(machine):
    machine.windows("AMD Radeon RX 6600 XT")
    machine.torch = "hip 7.2"
    machine.set(KERAS_BACKEND="torch")
    machine.lists("torch", "AMD Radeon RX 6600 XT")
    machine.proofs = (
        Proof("torch", "AMD Radeon RX 6600 XT (PyTorch, GPU)", "failed", "HIP error: invalid device function"),
    )


@provokes("devices-memory")
def a_gpu_whose_memory_is_taken(machine):
    machine.proofs = (Proof("jax", "NVIDIA GeForce RTX 3060", "failed", "RESOURCE_EXHAUSTED: Out of memory"),)


@provokes("devices-fails")
def a_gpu_that_fails_for_another_reason(machine):
    machine.proofs = (Proof("tensorflow", "Intel Arc", "failed", "InternalError: something else"),)


def pocl(machine, computes, *more):
    """OpenCL with PoCL alone, and how it computes."""
    device = Device("opencl", "0:0", "AMD EPYC", "cpu", version="OpenCL 3.0 PoCL 3.1", computes=computes)
    machine.answers["opencl"] = dataclasses.replace(machine.answers["opencl"], devices=(device, *more))


@provokes("devices-fails")
def a_full_disk_that_ends_pocls_process(machine):
    words = "fatal error: error in backend: IO failure on output stream: No space left on device"
    pocl(machine, f"failed: the process ended with status 1, without an answer: {words}")


@provokes("devices-fails")
def tensorflow_that_cannot_compute_on_an_amd_processor(machine):
    device = Device(
        "tensorflow", "/CPU:0", "AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "cpu", computes="failed: oneDNN"
    )
    machine.answers["tensorflow"] = dataclasses.replace(machine.answers["tensorflow"], devices=(device,))


@provokes("devices-late")
def a_busy_machine_whose_newer_pocl_gives_no_answer(machine):
    pocl(machine, "failed: timed out, no answer within 15 s", old_pocl())


@provokes("devices-late")
def a_busy_machine_without_an_answer_of_an_adapter_and_of_tensorflow(machine):
    late = "failed: timed out, no answer within 15 s"
    webgpu(machine, dataclasses.replace(LLVMPIPE, computes=late))
    device = Device("tensorflow", "/CPU:0", "AMD EPYC", "cpu", computes=late)
    machine.answers["tensorflow"] = dataclasses.replace(machine.answers["tensorflow"], devices=(device,))


@provokes("devices-fell-back")
def onnx_runtime_whose_cuda_cannot_be_loaded(machine):
    cuda = Device("onnxruntime", "CUDAExecutionProvider", "NVIDIA GPUs", "gpu", computes="failed: " + FELL_BACK)
    machine.lists("onnxruntime")
    machine.answers["onnxruntime"] = dataclasses.replace(machine.answers["onnxruntime"], devices=(cuda,))


# ------------------------------------------------------------ WebGPU

LLVMPIPE = Device("webgpu", "0", "AMD EPYC", "cpu", version="llvmpipe through Vulkan", computes="right")
CARD = Device("webgpu", "0", "AMD Radeon RX 7600", "gpu", version="Vulkan, radv")


def webgpu(machine, *devices, **changes):
    machine.lists("webgpu")
    machine.answers["webgpu"] = dataclasses.replace(machine.answers["webgpu"], devices=devices, **changes)


@provokes("webgpu-no-such-adapter")
def a_name_that_no_adapter_has(machine):
    webgpu(machine)
    machine.set(WGPUPY_WGPU_ADAPTER_NAME="Radeon")


@provokes("webgpu-hangs")
def a_graphics_driver_that_hangs(machine):
    machine.fails("webgpu", "no answer within 15 s", "timed out")


@provokes("webgpu-no-adapter")
def no_vulkan_driver(machine):
    webgpu(machine, message="no WebGPU adapter here")


@provokes("webgpu-no-adapter")
def a_broken_vulkan_loader(machine):
    machine.fails("webgpu", "OSError: libvulkan.so.1: cannot open shared object file")


@provokes("webgpu-no-adapter")
def a_mac_without_an_adapter(machine):
    machine.mac()
    machine.metal_family()
    webgpu(machine, message="no WebGPU adapter here")


@provokes("webgpu-does-not-compute")
def an_intel_mac_whose_radeon_computes_wrongly(machine):
    machine.mac("x86_64")
    machine.packages["tensorflow"] = "2.16.2"
    machine.tool("sysctl", "", status=1, error="sysctl: unknown oid 'sysctl.proc_translated'")
    webgpu(
        machine, Device("webgpu", "0", "AMD Radeon Pro 560X", "gpu", version="Metal", computes="failed: internal error")
    )


@provokes("webgpu-does-not-compute")
def an_adapter_that_computes_wrongly(machine):
    wrong = "wrong: by up to 12, in 4,096 of 4,096 whole numbers"
    webgpu(machine, dataclasses.replace(CARD, computes=wrong), LLVMPIPE)


@provokes("webgpu-software-alone")
def vulkan_hidden_in_a_container(machine):
    machine.nvidia()
    machine.cuda_family()
    webgpu(machine, LLVMPIPE)
