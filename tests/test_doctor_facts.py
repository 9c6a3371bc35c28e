"""What the doctor gathers: old and new formats of tools, tools that hang, crash or print rubbish, and its seconds."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import machines
from fakes import vendor_outputs as prints

from helpers import doctor
from helpers.compute import devices
from helpers.compute.devices import Answer, Device
from helpers.compute.host import Host
from helpers.doctor import amd_gpus, facts, nvidia, opencl

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")
TOOLS = ("nvidia-smi", "rocminfo", "amd-smi", "clinfo", "vulkaninfo", "ldconfig")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return machines.Machine(tmp_path, monkeypatch)


# ------------------------------------------------------------ old and new formats


@pytest.mark.parametrize(
    ("table", "expected"),
    [(prints.NVIDIA_SMI_470, "470.129.06"), (prints.NVIDIA_SMI_570, "570.86.15"), (prints.NVIDIA_SMI_610, "610.57.04")],
)
def test_the_drivers_version_is_read_from_every_table(table, expected, machine):
    machine.tool("nvidia-smi", table, special=[("query", "unknown option", 1)])
    assert nvidia.driver(machine.facts()) == expected


@pytest.mark.parametrize("module", [prints.NVIDIA_PROC, prints.NVIDIA_PROC_OPEN])
def test_the_drivers_version_is_read_from_the_kernels_module(module, machine):
    machine.file("proc/driver/nvidia/version", module.format(driver="570.86.15"))
    assert nvidia.driver(machine.facts()) == "570.86.15"


def test_a_driver_that_does_not_tell_the_capability_is_asked_without(machine):
    machine.nvidia("GeForce GTX 1080", "470.256.02", None)
    assert nvidia.gpus(machine.facts()) == [nvidia.Gpu("GeForce GTX 1080", "470.256.02", (6, 1))]
    machine.nvidia("NVIDIA Something New", "470.256.02", None)
    assert nvidia.gpus(machine.facts()) == [nvidia.Gpu("NVIDIA Something New", "470.256.02", None)]


def test_a_gpu_that_fell_off_the_bus_is_left_out(machine):
    lost = "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n"
    machine.tool("nvidia-smi", "", special=[("query", f"{lost}NVIDIA A100, 550.54.15, 8.0\n[N/A], [N/A], [N/A]", 0)])
    assert nvidia.gpus(machine.facts()) == [nvidia.Gpu("NVIDIA A100", "550.54.15", (8, 0))]


def test_rocminfo_names_the_gpus_in_its_order_and_not_the_processor(machine):
    gpus = [("gfx1032", "AMD Radeon RX 6700S"), ("gfx1035", "AMD Radeon Graphics")]
    machine.tool("rocminfo", prints.rocminfo(*gpus))
    assert amd_gpus.gpus(machine.facts()) == [amd_gpus.Gpu(*gpu) for gpu in gpus]


@pytest.mark.parametrize("text", [prints.AMD_SMI_6, prints.AMD_SMI_7])
def test_amd_smi_stands_in_for_rocminfo(text, machine):
    machine.tool("amd-smi", text)
    assert amd_gpus.gpus(machine.facts()) == [amd_gpus.Gpu("gfx1102", "AMD Radeon RX 7600")]


@pytest.mark.parametrize("target", sorted(amd_gpus.STATUS))
def test_the_kernel_names_every_target_without_a_tool(target, machine):
    machine.amd((target, "anything"))
    (machine.bin / "rocminfo").unlink()
    assert amd_gpus.gpus(machine.facts()) == [amd_gpus.Gpu(target, target)]


@pytest.mark.parametrize("text", [prints.CLINFO, prints.CLINFO_AMD])
def test_both_kinds_of_clinfo_are_read(text):
    assert opencl._clinfo_gpu(text) == "AMD Radeon RX 6700 XT"
    assert opencl._clinfo_gpu(prints.CLINFO_POCL) == opencl._clinfo_gpu(prints.RUBBISH) == ""


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("550.54.15", (550, 54, 15)), ("2.14.0+rocm10.1.0", (2, 14, 0)), ("2.22.0rc0", (2, 22, 0)),
     ("0.4.0.dev230202", (0, 4, 0)), ("580", (580,)), ("", ()), ("2.15.0a0+git1", (2, 15, 0))],
)  # fmt: skip
def test_numbers_of_versions(version, numbers):
    assert facts.numbers(version) == numbers


@pytest.mark.parametrize(
    ("text", "built_for"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu"),
        (
            "__version__ = '2.15.0'\ndebug = False\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n",
            "cuda 13.2",
        ),
        (
            "cuda: Optional[str] = None\nhip: Optional[str] = '7.2.53211-e1a6bc5663'\nxpu: Optional[str] = None",
            "hip 7.2.53211",
        ),
        ("cuda = None\nxpu: Optional[str] = '20250302'\n", "xpu 20250302"),
    ],
)
def test_what_pytorch_was_built_for_is_read_without_importing_it(text, built_for, tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported by the doctor')")
    (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert facts.torch_build() == built_for


@pytest.mark.parametrize(
    ("release", "family"),
    [
        ('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', "debian"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "debian"),
        ('PRETTY_NAME="Fedora Linux 42"\nID=fedora\n', "fedora"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "suse"),
        ("ID=endeavouros\nID_LIKE=arch\n", "arch"),
        ("ID=nixos\n", ""),
        ("", ""),
    ],
)
def test_distributions_are_known_by_their_family(release, family, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text(release)
    assert Host.here(tmp_path).distribution == family


def test_wsl_containers_and_hosts_are_known(tmp_path, monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    here = Host.here(tmp_path)
    assert (here.wsl, here.container, here.hosted) == (False, False, "")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("5.15.146.1-microsoft-standard-WSL2\n")
    (tmp_path / ".dockerenv").touch()
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab_20260819")
    here = Host.here(tmp_path)
    assert (here.wsl, here.container, here.hosted) == (True, True, "colab")
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    assert Host.here(tmp_path).hosted == "kaggle"


# ------------------------------------------------------------ tools that hang, crash or rave


def rubbish(machine, name):
    machine.tool(name, prints.RUBBISH)


def crash(machine, name):
    (machine.bin / name).write_text("#!/bin/sh\nkill -SEGV $$\n")
    (machine.bin / name).chmod(0o755)


def no_program(machine, name):
    (machine.bin / name).write_bytes(b"\x7fELF but not really")
    (machine.bin / name).chmod(0o755)


def silent(machine, name):
    machine.tool(name, "")


@pytest.mark.parametrize("fate", [rubbish, crash, no_program, silent])
def test_a_tool_that_crashes_or_raves_gives_no_finding_and_stops_nothing(fate, machine):
    for name in TOOLS:
        fate(machine, name)
    machine.set(OCL_ICD_FILENAMES="/x.so")  # something real to find besides
    assert machine.ids() == ["opencl-filenames-ignored"]


def test_every_tool_hangs_and_each_of_them_is_given_up(machine, monkeypatch):
    monkeypatch.setattr(facts, "TOOL_SECONDS", 0.3)
    for name in TOOLS:
        machine.hangs(name)
    began = time.monotonic()
    told = machine.facts()
    assert time.monotonic() - began < 5
    assert {told.tools[name].state for name in facts.TOOLS if facts.TOOLS[name][0] in TOOLS} == {"timed out"}
    assert machine.ids() == ["nvidia-driver-fails"]


def test_a_framework_that_cannot_even_be_asked_stays_unknown(machine, monkeypatch):
    machine.facts()

    def breaks(*_):
        raise OSError("no more processes")

    monkeypatch.setattr(devices, "ask", breaks)
    assert facts.gather(machine.host, machine.root).answers == {}


def test_a_judge_that_breaks_becomes_a_note_and_the_others_still_count(machine, monkeypatch):
    def broken_judge(told):
        yield "seen before"
        raise KeyError("a format that nobody knew")

    machine.set(OCL_ICD_FILENAMES="/x.so")
    monkeypatch.setattr(doctor, "JUDGES", (broken_judge, *doctor.JUDGES))
    note, found = machine.findings()
    assert note.id == "host-unfinished-check" and "KeyError" in note.why and "broken judge" in note.what
    assert found.id == "opencl-filenames-ignored"


# ------------------------------------------------------------ a busy machine

SLOW = """  # fates.py of the fake PyTorch: its first GPU hangs, the first time or always
import contextlib, pathlib, time
from helpers.compute.quiet import caught_stderr

def product(device, a, b):
    if device == "cuda:0" and not pathlib.Path({flag!r}).exists():
        pathlib.Path({flag!r} if {once} else {other!r}).touch()
        with caught_stderr() if {compiles} else contextlib.nullcontext():
            time.sleep(600)
    return a @ b
"""


@pytest.fixture
def asked_of_pytorch(machine, tmp_path, monkeypatch):
    """Gather the facts of the fake PyTorch alone, whose first GPU is slow."""

    def gather(once, compiles, seconds, again):
        folder = tmp_path / "frameworks"
        folder.mkdir()
        shutil.copy(Path(__file__).parent / "fakes/fake_gpu_frameworks/torch.py", folder)
        flags = {"flag": str(tmp_path / "slow once"), "other": str(tmp_path / "slow")}
        (folder / "fates.py").write_text(SLOW.format(once=once, compiles=compiles, **flags))
        monkeypatch.syspath_prepend(folder)
        for name, value in {"FRAMEWORKS": ("torch",), "TOOLS": {}}.items():
            monkeypatch.setattr(facts, name, value)
        monkeypatch.setattr(facts, "FRAMEWORK_SECONDS", seconds)
        monkeypatch.setattr(facts, "AGAIN_SECONDS", again)
        return facts.gather(machine.host, machine.root).proofs

    return gather


@pytest.mark.parametrize("compiles", [False, True])
def test_a_device_that_is_late_is_asked_once_more_with_more_time(compiles, asked_of_pytorch):
    """While a compiler's words are caught, those of the process that its time is up are caught with them."""
    proofs = asked_of_pytorch(True, compiles, 6, 30)
    assert [proof.verdict for proof in proofs] == ["right"] * 3


@pytest.mark.parametrize("compiles", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_device_that_is_late_twice_costs_the_others_nothing_and_has_not_failed(compiles, asked_of_pytorch):
    proofs = asked_of_pytorch(False, compiles, 6, 12)
    assert [proof.verdict for proof in proofs] == ["right", "late", "right"]


def test_a_verdict_of_the_first_answer_stays():
    right, late, none = (
        Device("torch", "cuda:0", "a GPU", "gpu", computes=how)
        for how in ("right", "failed: timed out, no answer within 7.5 s", "")
    )
    answer = lambda *all_of_them: Answer("torch", "ok", devices=all_of_them)  # noqa: E731
    timed_out, failed = Answer("torch", "timed out"), Answer("torch", "failed")
    assert facts.with_earlier(answer(right), answer(late)) == answer(right)
    assert facts.with_earlier(answer(late), answer(right)) == facts.with_earlier(answer(none), answer(right))
    assert facts.with_earlier(answer(late), timed_out) == answer(late)
    assert facts.with_earlier(timed_out, answer(right)) == answer(right)
    assert facts.with_earlier(timed_out, failed) == failed
    assert facts.no_answer(answer(right, late)) and facts.no_answer(timed_out)
    assert not facts.no_answer(answer(right, none)) and not facts.no_answer(failed)


def test_the_whole_examination_has_time_for_both_answers():
    assert doctor.WHOLE_SECONDS > facts.FRAMEWORK_SECONDS + facts.AGAIN_SECONDS + 2 * facts.SLACK


# The whole doctor as a learner runs it, in a process of its own, with every tool and every framework hanging.
WHOLE = """
import sys, time
from pathlib import Path
began = time.monotonic()
from helpers import doctor
from helpers.doctor import facts
facts.ELSEWHERE, facts.FRAMEWORK_SECONDS, facts.AGAIN_SECONDS = (), 6, 8  # which are 15 and 30
findings = doctor.examine()
print(round(time.monotonic() - began, 1), *(finding.id for finding in findings))
"""


@pytest.mark.slow
def test_the_whole_doctor_ends_in_time_while_everything_hangs(machine, tmp_path):
    for name in TOOLS:
        machine.hangs(name)
    frameworks = tmp_path / "frameworks"
    frameworks.mkdir()
    for name in ("tensorflow", "jax", "torch", "pyopencl", "onnxruntime", "wgpu"):
        (frameworks / f"{name}.py").write_text("import time\ntime.sleep(120)\n")
    root = Path(__file__).parent.parent
    path = os.pathsep.join([str(frameworks), str(root)])
    environment = {**os.environ, "PYTHONPATH": path, "ANYGPU_MNIST": str(tmp_path / "missing.npz")}
    began = time.monotonic()
    settings = {"cwd": root, "env": environment, "capture_output": True, "text": True, "timeout": 60, "check": True}
    done = subprocess.run([sys.executable, "-c", WHOLE], **settings)
    seconds = time.monotonic() - began
    assert seconds < 25, done.stdout
    ids = done.stdout.split()[1:]
    assert ids.count("packages-import-hangs") == 4, done.stdout
    assert {"opencl-hangs", "webgpu-hangs", "nvidia-driver-fails"} <= set(ids), done.stdout


def test_a_verdict_of_a_device_becomes_a_proof_as_it_is():
    told = [Device("torch", "cuda:0", "a GPU", "gpu", computes=how) for how in ("right", "wrong: by up to 1", "")]
    proofs = facts.proofs({"torch": Answer("torch", "ok", devices=tuple(told))})
    assert [(proof.verdict, proof.reason) for proof in proofs] == [("right", ""), ("wrong", "by up to 1")]


def test_each_framework_is_asked_once(machine, monkeypatch):
    asked = []
    machine.facts()
    monkeypatch.setattr(devices, "ask", lambda name, *_: asked.append(name) or Answer(name, "not installed"))
    facts.gather(machine.host, machine.root)
    assert sorted(asked) == sorted(devices.FRAMEWORKS)


# ------------------------------------------------------------ a learner whose backend fails gets the answer here


def test_a_backend_that_does_not_start_is_explained_in_the_same_words(tmp_path, monkeypatch):
    """`training.start` sends a learner to the doctor, which then has imported the same framework, and says more."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudnn.so.9: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    answer = devices.ask("tensorflow", 30)
    told = facts.Facts(Host("Linux", "x86_64", (3, 12), "venv", False), tmp_path, answers={"tensorflow": answer})
    (found,) = [item for item in doctor.judge(told) if isinstance(item, doctor.Finding)]
    assert found.id == "packages-import-fails" and "libcudnn.so.9: cannot open shared object file" in found.what
    assert "    python3 workshop.py lab" in found.next.splitlines()


@pytest.mark.parametrize(
    ("module", "stage", "words"),
    [
        ("raise ModuleNotFoundError('No module named h5py')", "import", "ModuleNotFoundError: No module named h5py"),
        ("import os; os._exit(3)", "import", "the process ended with status 3"),
        (
            "class ops:\n    def convert_to_numpy(x):\n        raise RuntimeError('no kernel image')\n    ones = int",
            "first operation",
            "no kernel image",
        ),
    ],
)
def test_keras_is_started_as_in_a_lesson_and_its_failure_is_told(module, stage, words, tmp_path, monkeypatch):
    (tmp_path / "keras.py").write_text(f"{module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    said = facts.start_keras()
    assert (said.state, said.text) == ("failed", stage) and words in said.error
    assert len(facts.first_operation(said, {})) == (stage == "first operation")


def test_keras_starts_here():
    assert facts.start_keras().state in ("ok", "missing", "timed out")  # a busy machine may need longer


def test_an_answer_without_devices_is_no_proof():
    assert (
        facts.proofs(
            {"jax": Answer("jax", "failed", message="x"), facts.WITHOUT_LOADER_VARIABLES: Answer("opencl", "ok")}
        )
        == ()
    )
