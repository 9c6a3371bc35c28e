"""WebGPU: the adapters and their names, a kernel's way there and back, and what is said where there is none."""

import os
import subprocess
import sys

import numpy as np
import pytest

from helpers import devices
from helpers.devices import webgpu
from helpers.devices.host import cpu_name
from helpers.devices.kernel_text import KernelError

DOUBLE = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<uniform> n: u32;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < n) {
        x[id.x] *= 2.0;
    }
}
"""


class Listed:
    """An adapter as wgpu lists it."""

    def __init__(self, info):
        self.info = info


def adapter(device="", kind="DiscreteGPU", backend="Vulkan", description=""):
    info = {"device": device, "adapter_type": kind, "backend_type": backend, "description": description, "vendor": ""}
    return Listed(info)


RTX = adapter("NVIDIA GeForce RTX 4090")
APPLE = adapter("Apple M2", "IntegratedGPU", "Metal")
LLVMPIPE = adapter("llvmpipe (LLVM 15.0.6, 256 bits)", "CPU", "Vulkan", "Mesa 22.3.6 (LLVM 15.0.6)")
WARP = adapter("Microsoft Basic Render Driver", "CPU", "D3D12")
OPENGL = adapter("NVIDIA GeForce RTX 4090/PCIe/SSE2", "Unknown", "OpenGL")


@pytest.fixture
def listed(monkeypatch):
    """Let wgpu list these adapters."""
    wgpu = pytest.importorskip("wgpu")
    monkeypatch.delenv(webgpu.CHOICE, raising=False)
    return lambda *found: monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: list(found))


@pytest.fixture(scope="module")
def device():
    found = webgpu.pick_adapter()
    if found is None:
        pytest.skip(webgpu.explain_missing())
    return webgpu.request_device(found)


# ---- adapters


@pytest.mark.parametrize(
    ("found", "kind", "name"),
    [
        (RTX, "gpu", "NVIDIA GeForce RTX 4090 (Vulkan, WebGPU, GPU)"),
        (LLVMPIPE, "cpu", f"{cpu_name()} (llvmpipe through Vulkan, WebGPU, CPU)"),
        (WARP, "cpu", f"{cpu_name()} (WARP through Direct3D 12, WebGPU, CPU)"),
        (adapter("Unheard of", "CPU"), "cpu", f"{cpu_name()} (a software adapter through Vulkan, WebGPU, CPU)"),
        (adapter("", "Unknown"), "gpu", "unnamed GPU (Vulkan, WebGPU, GPU)"),
    ],
)
def test_an_adapter_is_called_what_it_is(found, kind, name):
    assert (webgpu.describe(found).kind, webgpu.name(found)) == (kind, name)


def test_a_gpu_comes_first_and_opengl_only_where_there_is_nothing_else(listed):
    listed(LLVMPIPE, OPENGL, APPLE, RTX)
    assert webgpu.adapters() == [RTX, APPLE, LLVMPIPE]
    listed(OPENGL)
    assert webgpu.adapters() == [OPENGL]


def test_the_variable_of_wgpu_chooses_and_a_wrong_one_is_named(listed, monkeypatch):
    listed(RTX, LLVMPIPE)
    monkeypatch.setenv(webgpu.CHOICE, "LLVMpipe")
    assert webgpu.adapters() == [LLVMPIPE]
    monkeypatch.setenv(webgpu.CHOICE, "Radeon")
    assert webgpu.pick_adapter() is None
    assert "called 'Radeon'" in webgpu.explain_missing() and webgpu.CHOICE in webgpu.explain_missing()


def test_an_adapter_that_computes_wrongly_is_passed_over(listed, monkeypatch):
    broken, right = adapter("broken"), adapter("right")
    listed(broken, right)
    monkeypatch.setattr(webgpu, "request_device", lambda chosen: chosen)
    monkeypatch.setattr(webgpu, "run", lambda chosen, source, given, **how: given[0] @ given[1] + (chosen is broken))
    assert webgpu.pick_adapter() is right
    listed(broken)
    assert webgpu.pick_adapter() is None and "4,096 of 4,096" in webgpu.explain_missing()


def test_no_adapter_is_one_line_with_what_to_do(listed, capsys):
    listed()
    assert not webgpu.ready(webgpu.pick_adapter())
    output = capsys.readouterr().out
    assert output.startswith("skipped: ") and "doctor" in output and output.count("\n") == 1


def test_no_package_is_one_line_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "wgpu", None)
    assert webgpu.pick_adapter() is None
    assert webgpu.explain_missing().endswith("to have it: python3 workshop.py lab")
    assert devices.ask("webgpu").state in ("ok", "not installed")  # its own process imports for itself


def test_drivers_write_nothing_past_python(device):
    code = "from helpers.devices import webgpu; print(webgpu.name(webgpu.pick_adapter()))"
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stderr == "" and "WebGPU" in done.stdout


# ---- a kernel


def test_a_kernel_runs_and_its_arrays_stay_as_they_were(device):
    x = np.arange(1000, dtype=np.float32)
    doubled = webgpu.run(device, DOUBLE, [x, np.array([999], np.uint32)], output=0, workgroups=16)
    assert (doubled[:999] == 2 * x[:999]).all() and doubled[999] == 999 == x[999]
    assert doubled.shape == x.shape and doubled.dtype == x.dtype


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2.0", "d", ["line 8, column 20: no definition in scope for identifier: `d`", "x[id.x] *= d;\n"]),
        ("2.0;", "2.0", ["line 9, column 5", "expected"]),
        ("id.x < n", "id.x < f32(n)", ["line 7, column"]),
        ("fn main", "fn double", ["Unable to find entry point 'main'"]),
        ("workgroup_size(64)", "workgroup_size(4096)", ["4096"]),
        ("@binding(1)", "@binding(5)", ["asks for binding 5"]),
    ],
)
def test_a_refusal_says_where_and_why(device, old, new, words):
    assert old in DOUBLE
    with pytest.raises(KernelError) as raised:
        x = np.ones(8, np.float32)
        webgpu.run(device, DOUBLE.replace(old, new), [x, np.array([8], np.uint32)], output=0, workgroups=1)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_bindings_are_read_from_the_source():
    source = """
    // @group(0) @binding(9) var<storage> no: array<f32>;
    @binding(3) @group(0) var<uniform> told: u32;
    @group(0) @binding( 1u ) var<storage,read_write> out: array<f32>;
    @group(0)
    @binding(0) var < storage > x: array<f32>; /* @group(0) @binding(8) var<uniform> no: u32; */
    @group(1) @binding(2) var<storage> other: array<f32>;
    var<workgroup> near: array<f32, 64>;
    """
    assert webgpu.read_bindings(source) == {3: "uniform", 1: "storage", 0: "read-only-storage"}


# ---- devices


def test_devices_know_it_by_the_same_name(device):
    answer = devices.ask("webgpu")
    assert answer.state == "ok" and answer.version and answer.message == ""
    assert str(answer.devices[0]) == webgpu.name(webgpu.pick_adapter())
    assert str(devices.make_table([answer]).rows[0][0]).startswith("WebGPU (wgpu ")
