"""What can compute here: OpenCL, TensorFlow, JAX, PyTorch and ONNX Runtime, each asked in a process of its own.

Looking must not disturb a lesson. A framework that starts inside the lesson's kernel may take the GPU's memory, hang,
or fix settings that the lesson still wants to choose, so each one is asked by a short-lived process with a time-out:

    python -m helpers.devices --ask jax

That process imports the one framework, lists its devices and writes them as JSON. Whatever the framework prints, on
either stream, is kept apart from the answer. Lesson 00 shows the table; every lesson names its device by `pick`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import processes
from helpers.errors import WorkshopError
from helpers.machine.host import cpu_name, tidy
from helpers.tables import Table

if TYPE_CHECKING:
    import pyopencl as cl

FRAMEWORKS = ("opencl", "tensorflow", "jax", "torch", "onnxruntime")
SMALLEST_KERNEL = "__kernel void smallest(__global int *a) { a[0] = 1; }"
KINDS = ("gpu", "accelerator", "cpu")  # in the order in which `pick` prefers them
TITLES = {
    "opencl": "OpenCL",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "torch": "PyTorch",
    "onnxruntime": "ONNX Runtime",
}
_MODULES = {"opencl": "pyopencl"}  # where the module has another name than the framework
_PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm", "tensorflow-macos"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino"),
}
_INSTALL = {
    "opencl": "python3 workshop.py lab installs it",
    "tensorflow": "python3 workshop.py lab installs it",
    "jax": "python3 workshop.py lab installs it",
    "torch": "optional: python3 workshop.py lab --with torch",
    "onnxruntime": "optional",
}
# What frameworks write when they see a GPU that they cannot use: worth telling, though they go on with the CPU.
_HINTS = re.compile(r"falling back to cpu|cannot dlopen|could not find cuda drivers|skipping registering gpu", re.I)
_LOG_PREFIX = re.compile(  # as "I0000 00:00:1.2 99 port.cc:153] " and "2026-01-31 10:00:00.1: W x.cc:1] "
    r"^(?:[IWEF]\d{4} \S+\s+\d+ \S+?\] |\d{4}-\d\d-\d\d [\d:.]+:? [IWEF] \S+?\] |WARNING:\S+?:)\s*"
)


@dataclass(frozen=True)
class Device:
    """One device, as one framework sees it.

    Attributes:
        framework: one of FRAMEWORKS.
        identifier: what the framework calls it: "0:0" (OpenCL's platform and device), "/GPU:0", "cuda:0", "cpu:0".
        name: the name that people use, such as "AMD EPYC".
        kind: "cpu", "gpu" or "accelerator".
        vendor: as the driver spells it; empty if unknown.
        version: of the driver or runtime behind it; empty if unknown.
        memory_bytes: of the whole device, in bytes; None if the framework does not tell.
        compute_units: cores of a CPU, multiprocessors of a GPU; None if the framework does not tell.
        pci: the PCI address, such as "0000:01:00.0"; empty if unknown.
    """

    framework: str
    identifier: str
    name: str
    kind: str
    vendor: str = ""
    version: str = ""
    memory_bytes: int | None = None
    compute_units: int | None = None
    pci: str = ""

    @property
    def runtime(self) -> str:
        """The driver behind an OpenCL device in a few words, such as "PoCL 3.1"; empty for the other frameworks."""
        if self.framework != "opencl":
            return ""
        found = re.search(r"(PoCL|CUDA|AMD-APP) .*", self.version)
        return found.group(0) if found else "Intel" if self.vendor.startswith("Intel") else ""

    def __str__(self) -> str:
        """A short name for banners: "AMD EPYC (PoCL 3.1, OpenCL, CPU)"."""
        kind = self.kind if self.kind == "accelerator" else self.kind.upper()
        parts = (self.runtime, TITLES.get(self.framework, self.framework), kind)
        return f"{self.name} ({', '.join(part for part in parts if part)})"


@dataclass(frozen=True)
class Answer:
    """What one framework said.

    Attributes:
        framework: one of FRAMEWORKS.
        state: "ok", "not installed", "failed" or "timed out". A framework that works but sees no device is "ok".
        version: of the framework's Python package; empty if unknown.
        devices: what it sees, in its own order.
        message: why there is no device, or what the learner should know of those there are; often empty.
        seconds: how long the question took.
    """

    framework: str
    state: str
    version: str = ""
    devices: tuple[Device, ...] = ()
    message: str = ""
    seconds: float = 0.0


# --------------------------------------------------------------------------------------------------------------------
# Asking


def ask(framework: str, timeout: float = 60.0) -> Answer:
    """Ask one framework for its devices, in a process of its own.

    Args:
        framework: one of FRAMEWORKS.
        timeout: after so many seconds the process and all that it started are killed.

    Raises:
        WorkshopError: there is no such framework. Whatever goes wrong in the framework itself is in the answer.
    """
    _known(framework)
    if not installed(framework):
        return Answer(framework, "not installed", message=_INSTALL[framework])
    command = [sys.executable, "-P", "-m", "helpers.devices", "--ask", framework, "--timeout", str(timeout)]
    done = processes.run_command(command, timeout, env=_environment())
    answer = _read_answer(framework, done)
    if answer.state == "ok":
        return answer
    complaint = _last_line(done.stderr)
    if done.status is None:
        message = f"no answer within {timeout:g} s" + (f"; its last words: {complaint}" if complaint else "")
        return Answer(framework, "timed out", _package_version(framework), (), message, done.seconds)
    message = answer.message or f"{_how_it_ended(done.status)}{': ' + complaint if complaint else ''}"
    return Answer(framework, "failed", _package_version(framework), (), message, done.seconds)


def find(frameworks: Iterable[str] = FRAMEWORKS, timeout: float = 60.0) -> list[Answer]:
    """Ask several frameworks side by side; the answers come in the order of the question.

    Args:
        frameworks: some of FRAMEWORKS.
        timeout: seconds for each of them.

    Raises:
        WorkshopError: one of the names is not a framework that the workshop knows.
    """
    from concurrent.futures import ThreadPoolExecutor

    wanted = [_known(framework) for framework in frameworks]
    if not wanted:
        return []
    # On two cores side by side takes 4.7 s against 5.9 one by one; more at once than there are cores only costs memory.
    slowest_first = sorted(wanted, key=lambda framework: framework != "tensorflow")
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        answers = {framework: pool.submit(ask, framework, timeout) for framework in slowest_first}
        try:
            return [answers[framework].result() for framework in wanted]
        except BaseException:  # Ctrl-C too: leave no process behind
            pool.shutdown(wait=False, cancel_futures=True)
            processes.kill_all()
            raise


def in_this_process(framework: str) -> Device:
    """Return the device that a framework takes by default, without a process of its own: for one that has started.

    Args:
        framework: "tensorflow", "jax" or "torch".
    """
    _, found, _ = {"tensorflow": _list_tensorflow, "jax": _ask_jax, "torch": _ask_torch}[framework]()
    return next((device for device in found if device.kind != "cpu"), found[0])


def _known(framework: str) -> str:
    if framework not in FRAMEWORKS:
        raise WorkshopError(
            f"There is no framework called {framework!r}.",
            next=f"Choose one of: {', '.join(FRAMEWORKS)}.",
        )
    return framework


def _module(framework: str) -> str:
    return _MODULES.get(framework, framework)


def installed(framework: str) -> bool:
    """Look for the package without importing it. An empty folder that an uninstaller left behind does not count."""
    try:
        spec = importlib.util.find_spec(_module(framework))
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _package_version(framework: str) -> str:
    from importlib import metadata

    for package in _PACKAGES.get(framework, (_module(framework),)):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return ""


def _environment() -> dict[str, str]:
    """The variables for a process that asks: the same import path as here, and no grabbing of GPU memory."""
    return {**os.environ, "PYTHONPATH": processes.import_path(), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def _read_answer(framework: str, done: processes.Finished) -> Answer:
    """Turn what the process wrote into an answer; one with an empty message if it wrote nothing of use."""
    try:
        said = json.loads(done.stdout)
        if said["error"]:
            return Answer(framework, "failed", message=said["error"])
        devices = tuple(Device(**device) for device in said["devices"])
        hints = [line for line in done.stderr.splitlines() if _HINTS.search(line)]
        message = said["message"] or (_LOG_PREFIX.sub("", hints[-1]).strip() if hints else "")
        return Answer(framework, "ok", said["version"], devices, message, done.seconds)
    except (ValueError, TypeError, KeyError):
        return Answer(framework, "failed")


def _last_line(text: str) -> str:
    """The last line that says something: no log line, no bare punctuation, at most 300 characters."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if re.search(r"\w{3}", line) and not _LOG_PREFIX.match(line)]
    telling = [line for line in telling if not line.startswith(("WARNING: All log messages", "File ", "Extension mod"))]
    fatal = [line for line in telling if line.startswith("Fatal Python error")]
    return (fatal or telling or [""])[-1][:300]


def _how_it_ended(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended with status {status} before it answered"


# --------------------------------------------------------------------------------------------------------------------
# Running a command that may hang (the monitors use this too)


# --------------------------------------------------------------------------------------------------------------------
# Showing and choosing


def table(answers: Iterable[Answer]) -> Table:
    """One row for each device, and one for each framework that has none and why."""
    rows: list[tuple[str, ...]] = []
    for answer in answers:
        title = _title(answer)
        for device in answer.devices:
            name = f"{device.name}, {device.runtime}" if device.runtime else device.name
            rows.append((title, device.identifier, device.kind, name, _memory(device), _units(device)))
        if not answer.devices:
            state = "no device" if answer.state == "ok" else answer.state
            rows.append((title, state, "", answer.message, "", ""))
        elif answer.message:
            rows.append((title, "note", "", answer.message, "", ""))
    return Table(rows, ("Framework", "Device", "Kind", "Name", "Memory", "Units"))


def _title(answer: Answer) -> str:
    title = TITLES[answer.framework]
    if not answer.version:
        return title
    return f"OpenCL (PyOpenCL {answer.version})" if answer.framework == "opencl" else f"{title} {answer.version}"


def _memory(device: Device) -> str:
    return f"{device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else ""


def _units(device: Device) -> str:
    return str(device.compute_units) if device.compute_units else ""


def pick(answers: Iterable[Answer], framework: str | None = None, kind: str | None = None) -> Device:
    """Choose a device: a GPU before an accelerator before a CPU, and the first of its kind.

    Args:
        answers: what `find` returned.
        framework: only devices of this framework; None for any.
        kind: only devices of this kind; None for any.

    Raises:
        WorkshopError: nothing fits; it lists what there is. Or framework or kind is not one that exists.
    """
    answers = list(answers)
    if framework is not None:
        _known(framework)
    if kind is not None and kind not in KINDS:
        raise WorkshopError(f"There is no kind of device called {kind!r}.", next=f"Choose one of: {', '.join(KINDS)}.")
    everything = [device for answer in answers for device in answer.devices]
    fitting = [d for d in everything if framework in (None, d.framework) and kind in (None, d.kind)]
    if fitting:
        return min(fitting, key=lambda device: KINDS.index(device.kind))
    wanted = " ".join(([TITLES[framework]] if framework else []) + ["device"] + ([f"of kind {kind}"] if kind else []))
    there = "; ".join(f"{device} is {device.identifier}" for device in everything) or "no device at all"
    silent = [
        f"{TITLES[a.framework]}: {a.state}{', ' + a.message if a.message else ''}" for a in answers if not a.devices
    ]
    raise WorkshopError(
        f"There is no {wanted} here.",
        f"Found: {there}." + (f" Without a device: {'; '.join(silent)}." if silent else ""),
        "python3 workshop.py doctor says what is missing and how to get it.",
    )


# --------------------------------------------------------------------------------------------------------------------
# The processor's name


# --------------------------------------------------------------------------------------------------------------------
# Inside the process that asks: each function imports one framework and returns (version, devices, message)

Said = tuple[str, list[Device], str]


def _try(read: Callable[[], object]) -> object:
    """A property that a driver does not know raises its own kind of error; None then."""
    try:
        return read()
    except Exception:
        return None


def _ask_opencl() -> Said:
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        return cl.VERSION_TEXT, [], _no_platform(str(error))
    devices: list[Device] = []
    notes: list[str] = []
    seen: list[tuple[object, ...]] = []
    for number, shelf in enumerate(platforms):
        there = _try(shelf.get_devices) or []
        name = str(_try(lambda p=shelf: p.name))
        same = (name, _try(lambda p=shelf: p.version), [_try(lambda d=device: d.name) for device in there])
        if same in seen:  # the same driver reached by two paths
            notes.append(f"platform {number} is platform {seen.index(same)} listed again, left out")
        elif not there:
            notes.append(f"platform {number} ({name}) shows no device")
        else:
            for n, device in enumerate(there):
                described = describe_opencl(device, f"{number}:{n}")
                problem = compile_problem(device)
                if problem:
                    notes.append(
                        f"{number}:{n} ({described.runtime or name}) is left out, it cannot compile: {problem}"
                    )
                else:
                    devices.append(described)
        seen.append(same)
    if not platforms:
        notes.append(_no_platform(""))
    return cl.VERSION_TEXT, devices, "; ".join(notes)


def _no_platform(error: str) -> str:
    folder = os.environ.get("OCL_ICD_VENDORS")
    where = f"OCL_ICD_VENDORS is set to {folder}" if folder else "no driver is registered"
    return f"no OpenCL platform found, {where}" + (f" ({error})" if error else "")


def _opencl_version(text: str) -> str:
    """The version without the list of build options: "OpenCL 3.0 PoCL 3.1"."""
    return re.split(r"\s{2,}|, ", text.strip())[0]


def compile_problem(device: cl.Device) -> str:
    """Return what the device's compiler says against the smallest kernel, an empty text if it compiles.

    PoCL 3.0 from pip lists a processor that is newer than its LLVM 14 (AMD's Zen 5, for one) and then refuses every
    program with "unknown target CPU 'generic'" (github.com/pocl/pocl/issues/1049).
    """
    import pyopencl as cl

    try:
        build_quietly(cl.Context([device]), SMALLEST_KERNEL)
    except cl.Error as error:
        said = [line.strip() for line in str(error).splitlines()]
        return next((line for line in said if line.startswith("error")), said[0])
    return ""


def build_quietly(context: cl.Context, source: str) -> cl.Program:
    """Compile OpenCL C without what compilers write past Python, and without a file left behind when it fails.

    Raises:
        pyopencl.Error: the source does not compile; its text holds the compiler's log.
    """
    import pyopencl as cl

    from helpers.quiet import caught_stderr

    program = cl.Program(context, source)
    try:
        with warnings.catch_warnings(), caught_stderr():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # some compilers talk when nothing is wrong
            program.build()
    except cl.Error as error:
        saved = re.search(r"\(source saved as (.+)\)", str(error))  # PyOpenCL's copy, in the temporary folder
        if saved:
            Path(saved[1]).unlink(missing_ok=True)
        raise
    return program


def describe_opencl(device: cl.Device, identifier: str = "") -> Device:
    """Describe a PyOpenCL device in the words of the workshop; nothing is compiled or run for it.

    Args:
        device: what PyOpenCL lists.
        identifier: its place, "platform:device"; empty where that does not matter.
    """
    import pyopencl as cl

    kinds = cl.device_type
    version = _opencl_version(str(_try(lambda: device.platform.version)))
    bits = int(_try(lambda: device.type) or 0)
    kind = "gpu" if bits & kinds.GPU else "cpu" if bits & kinds.CPU else "accelerator"
    board = _try(lambda: device.board_name_amd) if kind == "gpu" else None  # AMD's `name` is the chip's code, "gfx1032"
    name = cpu_name() if kind == "cpu" else tidy(str(board or _try(lambda: device.name) or "unnamed device"))
    return Device(
        "opencl",
        identifier,
        name,
        kind,
        vendor=str(_try(lambda: device.vendor) or "").strip(),
        version=version,
        memory_bytes=_try(lambda: int(device.global_mem_size)),
        compute_units=_try(lambda: int(device.max_compute_units)),
        pci=str(_try(lambda: _opencl_pci(device)) or "") if kind == "gpu" else "",
    )


def _opencl_pci(device: object) -> str:
    """The PCI address by NVIDIA's extension (bus and slot; cl_nv_device_attribute_query) or by AMD's topology."""
    bus = _try(lambda: int(device.pci_bus_id_nv))
    if bus is not None:
        slot = int(_try(lambda: device.pci_slot_id_nv) or 0)  # device number in bits 3 to 7, function in bits 0 to 2
        domain = int(_try(lambda: device.pci_domain_id_nv) or 0)
        return f"{domain:04x}:{bus:02x}:{slot >> 3:02x}.{slot & 7}"
    topology = device.topology_amd
    return f"0000:{topology.bus & 0xFF:02x}:{topology.device & 0xFF:02x}.{topology.function & 7}"


def _ask_tensorflow() -> Said:
    # TensorFlow loads Keras (and with it scikit-learn and matplotlib), TensorFlow Lite loads JAX: half of the 7 s, and
    # none of it has a say in which devices there are. TensorFlow goes on without either. All else, its own libraries
    # and device plug-ins among it, is loaded as in a lesson, so that a broken plug-in shows here too.
    sys.modules.update({"keras": None, "tf_keras": None, "jax": None})
    return _list_tensorflow()


def _list_tensorflow() -> Said:
    import tensorflow as tf

    vendor = "AMD" if tf.test.is_built_with_rocm() else "NVIDIA" if tf.test.is_built_with_cuda() else ""
    devices = []
    for device in tf.config.list_physical_devices():
        kind = {"CPU": "cpu", "GPU": "gpu", "XPU": "gpu"}.get(device.device_type, "accelerator")
        details = (_try(lambda d=device: tf.config.experimental.get_device_details(d)) or {}) if kind != "cpu" else {}
        name = cpu_name() if kind == "cpu" else str(details.get("device_name") or f"unnamed {device.device_type}")
        apple = kind == "gpu" and sys.platform == "darwin"
        identifier = "/" + device.name.removeprefix("/physical_device:")
        devices.append(
            Device(
                "tensorflow",
                identifier,
                f"{cpu_name()} GPU" if apple else tidy(name),
                kind,
                vendor="Apple" if apple else vendor if kind == "gpu" else "",
            )
        )
    return tf.__version__, devices, ""


def _ask_jax() -> Said:
    import jax

    devices = []
    for device in jax.devices():
        # str() gives "cuda:0" or "rocm:0" where `platform` says only "gpu"; for a CPU it gives "TFRT_CPU_0".
        label = str(device) if re.fullmatch(r"[A-Za-z]+:\d+", str(device)) else f"{device.platform}:{device.id}"
        kind = "cpu" if device.platform == "cpu" else "accelerator" if device.platform == "tpu" else "gpu"
        vendor = {"cuda": "NVIDIA", "rocm": "AMD", "metal": "Apple", "tpu": "Google"}.get(
            label.split(":")[0].lower(), ""
        )
        name = cpu_name() if kind == "cpu" else tidy(str(device.device_kind))
        devices.append(Device("jax", label, name, kind, vendor=vendor))
    if devices and devices[0].kind != "cpu":
        processors = _try(lambda: jax.devices("cpu")) or []
        devices += [Device("jax", f"cpu:{device.id}", cpu_name(), "cpu") for device in processors]
    return jax.__version__, devices, ""


def _ask_torch() -> Said:
    import torch

    devices = [Device("torch", "cpu", cpu_name(), "cpu")]
    if torch.cuda.is_available():
        vendor = "AMD" if torch.version.hip else "NVIDIA"
        devices += [_torch_gpu(torch.cuda, "cuda", n, vendor) for n in range(torch.cuda.device_count())]
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        devices += [_torch_gpu(torch.xpu, "xpu", n, "Intel") for n in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        devices.append(Device("torch", "mps", f"{cpu_name()} GPU", "gpu", vendor="Apple"))
    return torch.__version__, devices, ""


def _torch_gpu(family: object, label: str, number: int, vendor: str) -> Device:
    known = family.get_device_properties(number)
    units = getattr(known, "multi_processor_count", None) or getattr(known, "gpu_eu_count", None)
    bus, slot = getattr(known, "pci_bus_id", None), getattr(known, "pci_device_id", None)
    domain = getattr(known, "pci_domain_id", 0)
    pci = f"{domain:04x}:{bus:02x}:{slot:02x}.0" if isinstance(bus, int) and isinstance(slot, int) else ""
    memory = getattr(known, "total_memory", None)
    name = tidy(known.name)
    return Device("torch", f"{label}:{number}", name, "gpu", vendor, "", memory, units, pci)


# What a provider computes on. A provider that is not named here is an accelerator of unknown make.
_PROVIDERS = {
    "CPU": ("cpu", ""),
    "Dnnl": ("cpu", "Intel"),
    "Xnnpack": ("cpu", ""),
    "ACL": ("cpu", "Arm"),
    "OpenVINO": ("cpu", "Intel"),  # its default device is the CPU
    "CUDA": ("gpu", "NVIDIA"),
    "Tensorrt": ("gpu", "NVIDIA"),
    "NvTensorRTRTX": ("gpu", "NVIDIA"),
    "ROCM": ("gpu", "AMD"),
    "MIGraphX": ("gpu", "AMD"),
    "Dml": ("gpu", ""),
    "WebGpu": ("gpu", ""),
    "CoreML": ("accelerator", "Apple"),
}


def _ask_onnxruntime() -> Said:
    import onnxruntime

    devices, refused = [], []
    for provider in onnxruntime.get_available_providers():
        if provider == "AzureExecutionProvider":  # computes elsewhere
            continue
        kind, vendor = _PROVIDERS.get(provider.removesuffix("ExecutionProvider"), ("accelerator", ""))
        if not _provider_works(onnxruntime, provider):
            refused.append(f"{provider} is built in but does not start here")
            continue
        name = cpu_name() if kind == "cpu" else f"{vendor or 'unnamed'} {kind if kind != 'gpu' else 'GPU'}"
        devices.append(Device("onnxruntime", provider, name, kind, vendor=vendor))
    return onnxruntime.__version__, devices, "; ".join(refused)


def _provider_works(onnxruntime: object, provider: str) -> bool:
    """A provider that is "available" is only built in: whether it starts shows when a session is made with it."""
    session = _try(lambda: onnxruntime.InferenceSession(_IDENTITY, providers=[provider]))
    return session is not None and provider in session.get_providers()


# The smallest ONNX model: y = Identity(x), one float32; IR version 7, opset 13 (onnx.proto's wire format).
_IDENTITY = (
    b"\x08\x07\x3a\x37\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01g"
    b"\x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
    b"\x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
    b"\x42\x04\x0a\x00\x10\x0d"
)


def _main(arguments: Sequence[str]) -> int:
    """Answer for one framework on standard output as JSON; whatever the framework prints goes to standard error."""
    import argparse
    import faulthandler

    parser = argparse.ArgumentParser(prog="python -m helpers.devices")
    parser.add_argument("--ask", choices=FRAMEWORKS, required=True)
    parser.add_argument("--timeout", type=float, default=60.0)
    chosen = parser.parse_args(arguments)
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # If whoever asked is gone, nobody kills this process: it then ends by itself, even while a library hangs.
    faulthandler.enable()
    faulthandler.dump_traceback_later(chosen.timeout + 2, exit=True)
    said: dict[str, object] = {"error": "", "version": "", "devices": [], "message": ""}
    try:
        version, devices, message = globals()[f"_ask_{chosen.ask}"]()
        said |= {"version": str(version), "devices": [asdict(device) for device in devices], "message": message}
    except Exception as error:
        first = (str(error).strip() or "no reason given").splitlines()[0]
        said["error"] = f"{type(error).__name__}: {first}"
    with channel:
        json.dump(said, channel)
    os._exit(0)  # the answer is out: skip the frameworks' own tidying up, which is slow and may crash


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
