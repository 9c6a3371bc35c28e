"""WebGPU from Python: the adapters of this machine, and one call that runs a kernel (lesson 14 takes its steps).

The package wgpu brings wgpu-native, which speaks to the driver that is there: Vulkan, Metal or Direct3D 12. An
*adapter* is what a driver offers: a GPU, or a program that computes on the processor and calls itself one.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.devices import products
from helpers.devices.device import Device
from helpers.devices.host import WORKSHOP, Host, command, cpu_name, tidy
from helpers.devices.kernel_text import KernelError, without_comments
from helpers.running import workarounds

if TYPE_CHECKING:
    import numpy as np
    import wgpu

    from helpers.devices.device import Multiply

CHOICE = "WGPUPY_WGPU_ADAPTER_NAME"  # wgpu's own variable: a part of the adapter's name or driver
# Programs that offer the processor as an adapter, by a part of the name that they give themselves.
SOFTWARE = {"llvmpipe": "llvmpipe", "lavapipe": "llvmpipe", "swiftshader": "SwiftShader", "microsoft basic": "WARP"}
ORDER = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")
BACKEND_TITLES = {"D3D12": "Direct3D 12", "D3D11": "Direct3D 11"}  # the others are called what they are
VENDORS = {0x1002: "AMD", 0x106B: "Apple", 0x8086: "Intel", 0x10DE: "NVIDIA"}  # their numbers on the PCI bus
# c = a . b of square matrices whose size is a multiple of 4; a workgroup computes 32 x 32 elements of c.
MATRIX_PRODUCT = ROOT / "helpers/web/product.wgsl"


# ---------------------------------------------------------------------------------------------- adapters


def adapters() -> list[wgpu.GPUAdapter]:
    """Return the adapters of this machine, a GPU of its own first, a software adapter last.

    OpenGL's are left out where another backend shows any: they are the same devices once more, with fewer abilities.
    """
    found = workarounds.list_adapters_once()
    modern = [adapter for adapter in found if not adapter.info["backend_type"].startswith("OpenGL")]
    wanted = os.environ.get(CHOICE, "").lower()
    if wanted:
        modern = [
            adapter for adapter in modern if wanted in f"{adapter.info['device']} {adapter.info['description']}".lower()
        ]
    return sorted(
        modern or ([] if wanted else found),
        key=lambda adapter: ORDER.index(_read_type(adapter) if _read_type(adapter) in ORDER else "Unknown"),
    )


def _read_type(adapter: wgpu.GPUAdapter) -> str:
    return adapter.info["adapter_type"]


def describe(adapter: wgpu.GPUAdapter, identifier: str = "") -> Device:
    """Describe an adapter in the words of the workshop.

    A program that computes on the processor, such as llvmpipe, has the processor's name, and its own in the version:
    "llvmpipe through Vulkan".

    Args:
        adapter: from `adapters`.
        identifier: its place among them; empty where that does not matter.
    """
    info = adapter.info
    words = f"{info['device']} {info['description']}".lower()
    software = next((name for part, name in SOFTWARE.items() if part in words), "")
    software = software or ("a software adapter" if _read_type(adapter) == "CPU" else "")
    backend = BACKEND_TITLES.get(info["backend_type"], info["backend_type"])
    through = f"{software} through {backend}" if software else backend
    return Device(
        "webgpu",
        identifier,
        cpu_name() if software else tidy(info["device"] or "unnamed GPU"),
        "cpu" if software else "gpu",
        vendor="" if software else VENDORS.get(info.get("vendor_id"), info["vendor"]),
        version=f"{through}, {info['description']}" if info["description"] else through,
        integrated=_read_type(adapter) == "IntegratedGPU",
        prepare=functools.partial(prepare_product, adapter),
    )


def name(adapter: wgpu.GPUAdapter) -> str:
    """Return the name for banners and figures, such as `AMD EPYC (llvmpipe through Vulkan, WebGPU, CPU)`."""
    return str(describe(adapter))


def prepare_product(adapter: wgpu.GPUAdapter) -> Multiply:
    """Return a function that multiplies two float32 matrices on an adapter, n x n, n a multiple of 4."""
    import numpy as np

    device, source = request_device(adapter), MATRIX_PRODUCT.read_text(encoding="utf-8")

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        matrices = [a, b, np.full_like(a, np.nan), np.full(4, len(a), np.uint32)]
        groups = -(-len(a) // 32)
        return run(device, source, matrices, output=2, workgroups=(groups, groups))

    return multiply


@functools.cache
def find_problem(adapter: wgpu.GPUAdapter) -> str:
    """Return how an adapter failed when this process first let it multiply; empty if it computed right."""
    computes = products.prove(describe(adapter))
    return "" if computes == products.RIGHT else computes


def pick_adapter() -> wgpu.GPUAdapter | None:
    """Return the best adapter that multiplies two matrices right, None where there is none or wgpu is not installed.

    The variable WGPUPY_WGPU_ADAPTER_NAME overrules this, as in every program with wgpu: `llvmpipe`, for example.
    """
    try:
        found = adapters()
    except ImportError:
        return None
    return next((adapter for adapter in found if not find_problem(adapter)), None)


def explain_missing() -> str:
    """Return one line: why there is no adapter here, and how to get one."""
    try:
        found = adapters()
    except ImportError as error:
        return f"wgpu cannot be imported here ({error}); to have it: {WORKSHOP} lab"
    if not found and os.environ.get(CHOICE):
        return f"no WebGPU adapter here is called {os.environ[CHOICE]!r}; to have another one, unset {CHOICE}"
    if not found:
        return f"no WebGPU adapter here; how to get one: {command(Host.here(), 'doctor')}"
    return "; ".join(
        f"{name(adapter)} does not compute right: {find_problem(adapter)}" for adapter in found if find_problem(adapter)
    )


def ready(adapter: wgpu.GPUAdapter | None) -> bool:
    """Return whether there is an adapter; where there is none, print why the cell is skipped, and what to install."""
    if adapter is None:
        print(f"skipped: {explain_missing()}")
    return adapter is not None


def request_device(adapter: wgpu.GPUAdapter) -> wgpu.GPUDevice:
    """Return a device of an adapter, with the adapter's limits."""
    return adapter.request_device_sync()


# ---------------------------------------------------------------------------------------------- a kernel


def read_bindings(source: str) -> dict[int, str]:
    """Return how a kernel binds the buffers of group 0: {number: "uniform", "storage" or "read-only-storage"}."""
    found = {}
    for attributes, space in re.findall(r"((?:@\w+\s*\([^)]*\)\s*)+)var\s*<([^>]*)>", without_comments(source)):
        group, number = (re.search(rf"@{which}\s*\(\s*(\d+)", attributes) for which in ("group", "binding"))
        if group and number and group[1] == "0":
            words = [word.strip() for word in space.split(",")]
            kind = "uniform" if words[0] == "uniform" else "storage" if "read_write" in words else "read-only-storage"
            found[int(number[1])] = kind
    return found


class Kernel:
    """A kernel: compiled once, for everybody who runs, judges or times it.

    Args:
        device: from `request_device`.
        source: WGSL with the entry point `main`; its buffers are in group 0.

    Raises:
        KernelError: WebGPU refuses it; the message names the line and the column where it knows them.
    """

    def __init__(self, device: wgpu.GPUDevice, source: str) -> None:
        import wgpu

        self.device, self.source, self.bindings = device, source, read_bindings(source)
        try:
            module = device.create_shader_module(code=source)
            entries = [
                {"binding": number, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": how}}
                for number, how in self.bindings.items()
            ]
            self.layout = device.create_bind_group_layout(entries=entries)
            self.pipeline = device.create_compute_pipeline(
                layout=device.create_pipeline_layout(bind_group_layouts=[self.layout]),
                compute={"module": module, "entry_point": "main"},
            )
        except wgpu.GPUError as error:
            raise KernelError(*explain_error(source, str(error))) from None

    def bind(self, buffers: Mapping[int, wgpu.GPUBuffer]) -> wgpu.GPUBindGroup:
        """Bind buffers to the numbers that the kernel declares; those that it does not declare are left out."""
        entries = [{"binding": number, "resource": {"buffer": buffers[number]}} for number in self.bindings]
        return self.device.create_bind_group(layout=self.layout, entries=entries)

    def submit(self, group: wgpu.GPUBindGroup, workgroups: int | Sequence[int]) -> None:
        """Put the kernel into the queue, and do not wait.

        Args:
            group: its buffers, from `bind`.
            workgroups: how many in x, or in x, y and z.
        """
        encoder = self.device.create_command_encoder()
        one_pass = encoder.begin_compute_pass()
        one_pass.set_pipeline(self.pipeline)
        one_pass.set_bind_group(0, group)
        one_pass.dispatch_workgroups(*([workgroups] if isinstance(workgroups, int) else workgroups))
        one_pass.end()
        self.device.queue.submit([encoder.finish()])


def buffer(device: wgpu.GPUDevice, array: np.ndarray) -> wgpu.GPUBuffer:
    """Return a buffer that holds a copy of `array` and can be bound in every way, and read back."""
    import wgpu

    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    if array.nbytes <= device.limits["max-uniform-buffer-binding-size"]:
        usage |= wgpu.BufferUsage.UNIFORM
    return device.create_buffer_with_data(data=array, usage=usage)


def read(device: wgpu.GPUDevice, source: wgpu.GPUBuffer, like: np.ndarray) -> np.ndarray:
    """Wait for the queue and return what a buffer holds, in the shape and the dtype of `like`."""
    import numpy as np

    return np.frombuffer(device.queue.read_buffer(source), like.dtype).reshape(like.shape)


def wait(device: wgpu.GPUDevice) -> None:
    """Wait until a device has done all that is in its queue: read four bytes, which come after all the rest.

    The call that is meant for it, `queue.on_submitted_work_done_sync`, raises a TypeError in wgpu 0.32.
    """
    import wgpu

    usage = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    last = device.create_buffer(size=4, usage=usage)
    device.queue.read_buffer(last)
    last.destroy()


def run(
    device: wgpu.GPUDevice, source: str, arrays: Sequence[np.ndarray], output: int, workgroups: int | Sequence[int]
) -> np.ndarray:
    """Run a kernel once and return one of its arrays (lesson 14 takes these steps).

    Args:
        device: from `request_device`.
        source: WGSL with the entry point `main`; array number i is bound at @group(0) @binding(i).
        arrays: NumPy arrays of elements of 4 bytes; they are copied, never changed.
        output: the number of the array to return, as left by the kernel.
        workgroups: how many in x, or in x, y and z.

    Raises:
        KernelError: WebGPU refuses the kernel or the launch.
    """
    import wgpu

    kernel = Kernel(device, source)
    buffers = [buffer(device, array) for array in arrays]
    if unknown := sorted(set(kernel.bindings) - set(range(len(buffers)))):
        raise KernelError(f"The kernel asks for binding {unknown[0]}, and nothing is bound there.")
    try:
        kernel.submit(kernel.bind(dict(enumerate(buffers))), workgroups)
        return read(device, buffers[output], arrays[output])
    except wgpu.GPUError as error:
        raise KernelError(*explain_error(source, str(error))) from None
    finally:
        for used in buffers:
            used.destroy()


def explain_error(source: str, message: str) -> tuple[str, str, str]:
    """Turn WebGPU's message into what, why and next, with the line of the source that it complains about.

    Args:
        source: the WGSL.
        message: wgpu's: `Shader ... error: REASON`, then `wgsl:LINE:COLUMN`; or lines of causes, the deepest last.
    """
    place = re.search(r"┌─ \w*:(\d+):(\d+)", message)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not place:
        causes = [line for line in lines if not line.startswith(("Validation Error", "Caused by", "In wgpu"))]
        return "WebGPU refuses this.", causes[-1] if causes else message, ""
    number, column = int(place[1]), int(place[2])
    reason = next((line.partition("error: ")[2] for line in lines if line.startswith("Shader")), "")
    notes = [line.removeprefix("= ") for line in lines if line.startswith("= ")]
    why = notes[-1] if notes else reason
    line = source.splitlines()[min(number, len(source.splitlines())) - 1]
    shown = f"line {number}, column {column}: {why}\n    {line}\n    {' ' * (column - 1)}^"
    return "The kernel does not compile.", shown, "Fix the place that is named."
