"""What the doctor gathers: formats of tools, tools that hang, crash or rave, a busy machine."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import machines

from helpers import devices, doctor
from helpers.devices.host import Host
from helpers.doctor import facts, gather, gpus, opencl

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
ROOT = Path(__file__).parent.parent
RUBBISH = '\0\ufffd<<< not, a, table >>>\n\n,,,,\n{["gpu_data": \nAgent 7\n*** \n'


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return machines.Machine(tmp_path, monkeypatch)


# ------------------------------------------------------------ old and new formats


@pytest.mark.parametrize(("table", "version"), [("NVIDIA_SMI_470", "470.129.06"), ("NVIDIA_SMI_610", "610.57.04")])
def test_the_drivers_version_is_read_from_every_table(table, version, machine):
    machine.tools({"nvidia-smi": {"stdout": f"@{table}", "query": "unknown option"}})
    assert gpus.read_nvidia_driver(machine.facts()) == version


@pytest.mark.parametrize("module", ["NVIDIA_PROC", "NVIDIA_PROC_OPEN"])
def test_the_drivers_version_is_read_from_the_kernels_module(module, machine):
    machine.files({"proc/driver/nvidia/version": machines.OUTPUTS[module].format(driver="570.86.15")})
    assert gpus.read_nvidia_driver(machine.facts()) == "570.86.15"


@pytest.mark.parametrize(
    ("chips", "branch"),
    [
        (["12ba"], "470"),  # GK208, the last of its generation
        (["1340"], "580"),  # GM108, the first Maxwell
        (["1df6"], "580"),  # Tesla V100S, the last Volta
        (["1e02"], ""),  # Titan RTX, the first Turing
        (["2684"], ""),  # RTX 4090
        (["1c03", "2684"], ""),  # an old one beside it: the newest driver is for the new one
        ([""], ""),
    ],
)
def test_the_pci_bus_tells_the_last_branch_that_knows_a_gpu(chips, branch, machine):
    """At the edges of the lists in https://pci-ids.ucw.cz and NVIDIA's open kernel modules."""
    machine.cards([f"10de:{chip}" for chip in chips])
    assert gpus.find_last_branch(machine.facts()) == branch


def test_a_gpu_that_fell_off_the_bus_is_left_out(machine):
    lost = "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n"
    machine.tools({"nvidia-smi": {"query": f"{lost}NVIDIA A100, 550.54.15, 8.0\n[N/A], [N/A], [N/A]"}})
    assert gpus.list_nvidia_gpus(machine.facts()) == [gpus.NvidiaGpu("NVIDIA A100", "550.54.15", (8, 0))]


def test_the_kernel_names_every_target(machine):
    machine.amd(gpus.AMD_WITH_PACKAGES)
    assert tuple(gpus.list_amd_targets(machine.facts())) == gpus.AMD_WITH_PACKAGES


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("AMD Radeon RX 6600 XT", "gfx1032"),
        ("AMD Radeon RX 7900 XTX (PyTorch, GPU)", "gfx1100"),
        ("AMD Radeon(TM) RX 7900 GRE", "gfx1100"),
        ("Radeon RX 6800", "gfx1030"),
        ("AMD Radeon RX 6600M", ""),
        ("AMD Radeon(TM) Graphics", ""),
        ("AMD Radeon RX 580", ""),
        ("AMD Radeon RX 6500 XT", ""),
    ],
)
def test_a_card_is_known_by_its_name_where_nothing_else_tells(name, target):
    assert gpus.find_amd_target(name) == target


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("550.54.15", (550, 54, 15)),
        ("2.14.0+rocm10.1.0", (2, 14, 0)),
        ("2.22.0rc0", (2, 22, 0)),
        ("0.4.0.dev230202", (0, 4, 0)),
        ("", ()),
    ],
)
def test_numbers_of_versions(version, numbers):
    assert facts.parse_version(version) == numbers


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu"),
        ("debug = False\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n", "cuda 13.2"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '7.2.53211-e1a6bc5663'\n", "hip 7.2.53211"),
        ("cuda = None\nxpu: Optional[str] = '20250302'\n", "xpu 20250302"),
    ],
)
def test_what_pytorch_was_built_for_is_read_without_importing_it(text, build, tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported by the doctor')")
    (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert gather.read_torch_build() == build


# ------------------------------------------------------------ tools that hang, crash or rave


@pytest.mark.parametrize(
    "script", [f"printf '%s' {shlex.quote(RUBBISH)}", "kill -SEGV $$", b"\x7fELF but not really", ""]
)
def test_a_tool_that_crashes_or_raves_gives_no_finding_and_stops_nothing(script, machine):
    machine.program("nvidia-smi", script)
    machine.cards(["1002"])  # something real to find besides
    assert [finding.id for finding in machine.findings()] == ["amd-no-kfd"]
    assert {"nvidia-smi", "nvidia-smi gpus"} <= set(machine.facts().tools)


def test_a_tool_that_hangs_is_given_up(machine, monkeypatch):
    monkeypatch.setattr("helpers.running.tools.TOOL_SECONDS", 0.3)
    machine.program("nvidia-smi", "exec /bin/sleep 60")
    gathered = machine.facts()
    assert {gathered.tools[name].state for name in ("nvidia-smi", "nvidia-smi gpus")} == {"timed out"}
    assert [finding.id for finding in machine.findings()] == ["devices-late"]


def test_a_framework_that_cannot_be_asked_stays_unknown(machine, monkeypatch):
    def breaks(*_):
        raise OSError("no more processes")

    monkeypatch.setattr(devices, "ask", breaks)
    assert gather.gather(machine.system, machine.root).answers == {}


# ------------------------------------------------------------ a busy machine

# The whole doctor as a learner runs it, in a process of its own, with every tool and every framework hanging.
WHOLE_DOCTOR = """
from helpers import doctor
from helpers.doctor import gather
from helpers.setup import programs
programs.FOLDERS, gather.FRAMEWORK_SECONDS = (), 8  # which is 30
findings = doctor.examine()
print(*(finding.id for finding in findings))
print(*(finding.what for finding in findings))
"""


@pytest.mark.slow
def test_the_whole_doctor_ends_in_time_with_one_note_while_everything_hangs(machine, tmp_path):
    machine.program("nvidia-smi", "exec /bin/sleep 60")
    frameworks = tmp_path / "frameworks"
    frameworks.mkdir()
    for name in ("tensorflow", "jax", "torch", "pyopencl", "onnxruntime", "wgpu"):
        (frameworks / f"{name}.py").write_text("import time\ntime.sleep(120)\n")
    path = os.pathsep.join([str(frameworks), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "ANYGPU_MNIST": str(tmp_path / "missing.npz")}
    began = time.monotonic()
    settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": 60, "check": True}
    done = subprocess.run([sys.executable, "-c", WHOLE_DOCTOR], **settings)
    assert time.monotonic() - began < 25, done.stdout
    ids = done.stdout.splitlines()[0].split()
    assert "devices-late" in ids and len(set(ids)) == len(ids), done.stdout
    assert all(name in done.stdout for name in ("TensorFlow", "JAX", "OpenCL", "WebGPU", "nvidia-smi")), done.stdout


def test_the_whole_examination_has_time_for_all_answers():
    assert facts.FRAMEWORK_SECONDS + gather.SLACK < doctor.WHOLE_SECONDS


# ------------------------------------------------------------ OpenCL for real


def test_a_variable_that_hides_every_driver_here_is_the_finding(tmp_path, monkeypatch):
    here = Host.here()
    if here.system != "Linux":
        pytest.skip("needs Linux, whose loader reads the variable")
    for name, value in {"FRAMEWORKS": ("opencl",), "TOOLS": {}}.items():
        monkeypatch.setattr(gather, name, value)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    monkeypatch.delenv("OPENCL_VENDOR_PATH", raising=False)
    (found,) = [item for item in opencl.find_no_device(gather.gather(here)) if isinstance(item, doctor.Finding)]
    assert found.id == "devices-hidden" and "    unset OCL_ICD_VENDORS" in found.next.splitlines()
