"""helpers.devices: the frameworks that are here for real, and every way in which one can fail to answer."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import psutil
import pytest
from waiting import alive, in_the_end

from helpers import devices
from helpers.devices import KINDS, Answer, Device, ask, find, frameworks, host, make_table, pick, products
from helpers.devices.device import LOOP_FAULT, looks_integrated, preference
from helpers.errors import WorkshopError

FAKES = Path(__file__).parent / "fakes"
ROOT = FAKES.parent.parent
REAL = ("opencl", "tensorflow", "jax", "onnxruntime")  # what the cpu lock installs
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the loader of the Linux wheel")


def test_jax_sums_a_product_by_equal_numbers_right():
    # JAX 0.10.2 returns garbage here, without a message: https://github.com/jax-ml/jax/issues/39103
    program = "import jax, jax.numpy as jnp; m = jnp.ones((256, 256)); print(jax.jit(lambda x: (x @ m).mean())(m))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(ran.stdout) == 256


@pytest.fixture(scope="module")
def answers():
    """Each framework is asked once, which changes nothing in this process."""
    before = dict(os.environ), set(REAL) & set(sys.modules)
    found = dict(zip(REAL, find(REAL), strict=True))
    assert (dict(os.environ), set(REAL) & set(sys.modules)) == before
    return found


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """Write a module that pretends to be a framework, and put it first on the path."""

    def write(name, source):
        folder = tmp_path / "fake_frameworks"
        folder.mkdir(exist_ok=True)
        shutil.copy(FAKES / "fake_gpu_frameworks/fates.py", folder)
        (folder / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)

    return write


@pytest.fixture
def gpu_machine(monkeypatch):
    monkeypatch.syspath_prepend(FAKES / "fake_gpu_frameworks")


# ---- the real frameworks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "identifier"), [("tensorflow", "/CPU:0"), ("jax", "cpu:0"), ("onnxruntime", "CPUExecutionProvider")]
)
def test_the_cpu_is_found_and_has_a_human_name(answers, name, identifier):
    cpus = [device for device in answers[name].devices if device.kind == "cpu"]
    assert (cpus[0].identifier, cpus[0].name, cpus[0].computes) == (identifier, host.cpu_name(), "right")
    assert answers[name].state == "ok" and answers[name].version[0].isdigit()


def test_opencl_tells_memory_units_and_version():
    answer = devices.ask("opencl")
    if not answer.devices:
        pytest.skip(f"no OpenCL device here: {answer.message}")
    for device in answer.devices:
        assert device.version.startswith("OpenCL ") and device.memory_bytes > 2**20 and device.compute_units >= 1
        assert not device.name.startswith("pthread")
    assert len({device.identifier for device in answer.devices}) == len(answer.devices)


# ---- the proof: fake devices that compute wrongly, fail, hang, or end the process (fakes/fake_gpu_frameworks/fates.py)


@pytest.fixture
def fates(gpu_machine, monkeypatch):
    return lambda **how: monkeypatch.setenv("FAKE_FATES", json.dumps({k.replace("_", ":"): v for k, v in how.items()}))


def test_a_device_that_computes_wrongly_is_told_and_never_picked(fates):
    fates(cuda_0="wrong")
    answer = ask("torch")
    assert [device.state for device in answer.devices] == ["right", "wrong", "right"]
    assert "4,096 of 4,096" in answer.devices[1].reason
    assert pick([answer]).identifier == "cuda:1"
    shown = make_table([answer])
    assert [row[3].partition(":")[0] for row in shown.rows] == ["right", "wrong", "right"]
    assert answer.devices[1].reason in shown.below[0]  # the whole reason


def test_a_device_that_fails_is_told_with_its_reason(fates):
    fates(cuda_0="fails", cuda_1="fails")
    answer = ask("torch")
    reason = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    assert [device.computes for device in answer.devices] == ["right", f"failed: {reason}", f"failed: {reason}"]
    assert pick([answer]).identifier == "cpu"
    silent = Answer("jax", "failed", "", (), "ImportError: libcudart")
    with pytest.raises(WorkshopError) as refused:
        pick([answer, silent], "gpu")
    facts = (reason, "(PyTorch, CPU) (cpu)", "JAX: failed", "libcudart")
    assert all(fact in refused.value.why for fact in facts) and "doctor" in refused.value.next


@pytest.mark.parametrize(
    ("fate", "states", "word", "picked"),
    [
        ({"cuda_0": "dies"}, ["right", "failed", ""], "SIGABRT", "cpu"),  # a device that is right before an untried one
        ({"cpu": "hangs"}, ["failed", "", ""], "within 3 s", "cuda:0"),
        ({"cuda_1": "hangs while it compiles"}, ["right", "right", "failed"], "within 6 s", "cuda:0"),
    ],
)
def test_a_device_that_ends_the_process_or_hangs_has_failed_and_those_behind_are_not_tried(
    fate, states, word, picked, fates
):
    fates(**fate)
    answer = ask("torch", timeout=int(re.findall(r"\d+", word)[0]) if "within" in word else 60)
    assert answer.state == "ok" and [device.state for device in answer.devices] == states
    reason = next(device.reason for device in answer.devices if not device.is_usable)
    assert word in reason and reason.startswith("timed out") == ("within" in word)
    assert ("not tried" in str(make_table([answer]))) == ("" in states)
    assert pick([answer]).identifier == picked


def proof_of(prepare, **more):
    return products.prove(Device("jax", "cpu:0", "a device", "cpu", prepare=prepare, **more))


def test_a_device_that_gets_a_loop_wrong_is_usable_and_comes_after_one_that_does_not():
    faulty = proof_of(lambda: np.matmul, has_wrong_loop=lambda: True)
    assert faulty == LOOP_FAULT and proof_of(lambda: np.matmul, has_wrong_loop=lambda: False) == "right"
    assert proof_of(lambda: lambda a, b: 2 * (a @ b), has_wrong_loop=lambda: True).startswith("wrong: ")
    cpu = Device("opencl", "0:0", "a device", "cpu", computes="right")
    wrong_loops, untried = dataclasses.replace(cpu, computes=faulty), dataclasses.replace(cpu, computes="")
    assert wrong_loops.is_usable and (wrong_loops.state, wrong_loops.has_loop_fault) == ("right", True)
    assert sorted([untried, wrong_loops, cpu], key=preference) == [cpu, wrong_loops, untried]
    gpu = dataclasses.replace(wrong_loops, kind="gpu")
    assert min([cpu, gpu], key=preference) == gpu


def test_opencls_loop_is_right_without_optimization(monkeypatch):
    """It is the driver's optimization that makes it wrong, not the loop."""
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    for device in frameworks.opencl_devices().values():
        assert not products.has_wrong_opencl_loop(device)


def test_onnx_runtime_that_falls_back_to_the_processor_has_failed():
    """For real: ONNX Runtime takes a provider that it does not have, says so in a warning, and goes on without it."""
    assert proof_of(lambda: products.prepare_onnxruntime("CUDAExecutionProvider")).startswith("failed: ")


@pytest.mark.parametrize(
    ("multiply", "computes"),
    [
        (lambda a, b: a @ b, "right"),
        (lambda a, b: (a.astype("float16") @ b.astype("float16")).astype("float32"), "right"),
        (lambda a, b: (a @ b).T, "wrong"),
        (lambda a, b: a @ b * np.float32("nan"), "wrong: not a number"),
        (lambda a, b: a @ b if a.min() < 0 else a @ b * 1.1, "wrong"),
        (lambda a, b: a[0] @ b, "wrong"),
        (lambda a, b: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_products_are_judged_by_numpys(multiply, computes):
    assert proof_of(lambda: multiply).startswith(computes)


def test_a_device_of_another_process_is_not_tried_here():
    with pytest.raises(ValueError, match="another process"):
        proof_of(None)


# ---- the best GPU


def gpu(framework, identifier, memory=None, **what):
    return Device(
        framework, identifier, "a GPU", "gpu", memory_bytes=memory and memory * 2**30, computes="right", **what
    )


def test_a_card_comes_before_the_processors_gpu_and_the_larger_card_before_the_smaller():
    inside, small = gpu("torch", "cuda:0", 32, integrated=True), gpu("torch", "cuda:1", 8)
    large, twin = gpu("torch", "cuda:2", 24), gpu("torch", "cuda:3", 24)
    assert pick([Answer("torch", "ok", devices=(inside, small, large, twin))]) is large
    assert pick([Answer("torch", "ok", devices=(inside,))]) is inside
    other = gpu("opencl", "0:0", 8)  # the first framework that has a card; memory decides within it alone
    answers = [Answer("opencl", "ok", devices=(other,)), Answer("torch", "ok", devices=(inside, large))]
    assert pick(answers) is other and pick(answers[1:]) is large


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("AMD Radeon(TM) Graphics", True),
        ("AMD Radeon 890M Graphics", True),
        ("AMD Radeon Vega 8 Graphics", True),
        ("Intel(R) Iris(R) Xe Graphics", True),
        ("Intel(R) Arc(TM) 140V GPU", True),
        ("Intel Graphics", True),
        ("AMD Radeon RX 7600", False),
        ("AMD Radeon RX Vega 64", False),
        ("Intel(R) Arc(TM) A770 Graphics", False),
        ("Intel Arc B580", False),
        ("NVIDIA GeForce RTX 3060", False),
    ],
)
def test_a_gpu_inside_a_processor_is_known_by_its_name(name, inside):
    assert looks_integrated(name) is inside


# ---- drivers and GPUs


@linux
def test_no_opencl_platform_is_an_answer_without_devices(monkeypatch, tmp_path):
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "nothing-here"))
    answer = ask("opencl")
    assert (answer.state, answer.devices) == ("ok", ())
    assert "no OpenCL platform" in answer.message and "OCL_ICD_VENDORS" in answer.message
    assert "no device" in str(make_table([answer]))


def test_opencl_gpus_have_board_names_and_addresses_and_odd_platforms_are_passed_over(gpu_machine):
    answer = ask("opencl")
    assert answer.state == "ok", answer.message
    assert [(d.identifier, d.name, d.kind, d.pci) for d in answer.devices] == [
        ("1:0", "AMD Radeon RX 6600 XT", "gpu", "0000:2f:00.0"),
        ("1:1", "AMD Radeon RX 6600 XT", "gpu", "0000:2f:00.0"),  # two alike in one platform are two
        ("2:0", "NVIDIA GeForce RTX 4090", "gpu", "0000:01:00.0"),
        ("2:1", "NVIDIA GeForce RTX 6090", "gpu", ""),
    ]
    assert "rusticl" in answer.message and "broken" in answer.message
    assert [d.computes for d in answer.devices] == ["right"] * 3 + ["failed: it cannot compile: error: unknown target"]
    assert str(answer.devices[2]) == "NVIDIA GeForce RTX 4090 (CUDA 12.4.131, OpenCL, GPU)"


def test_torch_and_jax_gpus_keep_the_names_that_the_frameworks_use(gpu_machine):
    torch, jax = find(("torch", "jax"))
    assert [d.identifier for d in torch.devices] == ["cpu", "cuda:0", "cuda:1"]
    last = torch.devices[2]
    assert (last.name, last.vendor, last.compute_units) == ("NVIDIA H200", "NVIDIA", 132)
    assert last.pci == "0000:30:00.0"
    assert [d.identifier for d in jax.devices] == ["cuda:0", "cpu:0"]
    assert pick([torch, jax]).identifier == "cuda:0" and pick([jax], "cpu").identifier == "cpu:0"


@pytest.mark.parametrize(
    ("chosen", "device"), [("", "cuda:0"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")]
)
def test_a_framework_that_has_started_names_the_gpu_that_it_takes(chosen, device):
    code = "from helpers import devices; print(devices.find_default_device('torch').identifier)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FAKES / "fake_gpu_frameworks"), str(ROOT)])}
    environment["KERAS_TORCH_DEVICE"] = chosen
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=environment)
    assert (done.stdout.strip(), done.stderr) == (device, "")


def test_tensorflow_names_a_gpu_whose_capability_it_cannot_read(monkeypatch):
    """A fake of TensorFlow 2.21 on an H100."""

    def details(device):
        raise RuntimeError("Device returned compute capability an in invalid format: 9.0a")

    config = types.SimpleNamespace(experimental=types.SimpleNamespace(get_device_details=details))
    told = {"device_name": "NVIDIA H100", "compute_capability": "9.0a"}
    inner = types.SimpleNamespace(
        pywrap_tfe=types.SimpleNamespace(TF_GetDeviceDetails=lambda number: [{}, told][number])
    )
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config, python=inner))
    monkeypatch.setitem(sys.modules, "tensorflow.python", inner)
    assert frameworks._read_tensorflow_details("the GPU", 1) == told


# ---- frameworks that do not answer


def test_a_framework_that_is_not_installed_is_told_without_starting_a_process(monkeypatch):
    monkeypatch.setattr(devices.processes, "run", lambda *_, **__: pytest.fail("it started a process"))
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = ask("torch")
    assert (answer.state, answer.devices) == ("not installed", ()) and "--with torch" in answer.message


@posix
@pytest.mark.parametrize(
    ("source", "facts"),
    [
        ("print('noise')\nraise ImportError('libcudart.so.12: no such file')", ["libcudart.so.12"]),
        (
            "import os\nprint('noise', 2 * '{')\nos.write(2, b'out of cheese')\nos._exit(3)",
            ["status 3", "out of cheese"],
        ),
        ("import ctypes\nctypes.string_at(0)", ["SIGSEGV"]),
    ],
)
def test_one_that_fails_says_why(framework, source, facts):
    framework("torch", source)
    answer = ask("torch")
    assert answer.state == "failed" and all(fact in answer.message for fact in facts)


def test_a_gpu_that_a_framework_cannot_use_is_noted(framework):
    hint = "A CUDA-enabled jaxlib is not installed. Falling back to cpu."
    line = f"W0000 00:00:1.1 7 x.cc:1] {hint}"
    fake = (FAKES / "fake_gpu_frameworks/jax.py").read_text()
    framework("jax", fake + f"\nimport sys\nprint({line!r}, file=sys.stderr)")
    answer = ask("jax")
    assert answer.message == hint and ("JAX 0.10.2", "note", "", "", hint, "", "") in make_table([answer]).rows


HANG = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({pid!r}).write_text(str(child.pid) + " ")
print("connecting to the license server", file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_one_that_hangs_is_told_with_its_last_words(framework, tmp_path):
    framework("torch", HANG.format(pid=str(tmp_path / "pid")))
    answer = ask("torch", timeout=6)
    assert answer.state == "timed out"
    shown = make_table([answer])
    assert shown.rows[0][1:5] == ("timed out", "", "", "") and answer.message in shown.below[0]
    assert "within 6 s" in answer.message and "license server" in answer.message


@posix
def test_nothing_is_left_when_whoever_asked_is_interrupted(framework, tmp_path):
    pid = tmp_path / "pid"
    framework("torch", HANG.format(pid=str(pid)))
    code = f"import sys; sys.path.insert(0, {sys.path[0]!r}); from helpers.devices import find; find(['torch'])"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL) as asker:
        assert in_the_end(lambda: asker.poll() is not None or (pid.exists() and " " in pid.read_text()))
        assert asker.poll() is None
        asked = psutil.Process(asker.pid).children()
        asker.send_signal(signal.SIGINT)
        assert asker.wait(600) != 0
    assert in_the_end(lambda: not any(map(alive, [*asked, int(pid.read_text())])))


# ---- choosing


def test_kinds_are_taken_in_their_order_and_one_that_is_wanted_alone():
    listed = [Device("jax", f"{kind}:{number}", "a device", kind) for kind in KINDS[::-1] for number in range(2)]
    for number, kind in enumerate(KINDS):
        there = [device for device in listed if device.kind in KINDS[number:]]
        assert pick([Answer("jax", "ok", devices=tuple(there))]).identifier == f"{kind}:0"
        assert pick(iter([Answer("jax", "ok", devices=tuple(listed))]), kind).identifier == f"{kind}:0"


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (("torch",), "lab --with torch"),
        (("jax",), "lab --accel cpu"),
        (("a.b", "A B"), "lab --with a.b"),
    ],
)
@pytest.mark.parametrize("installed_by", ["venv", "conda"])
def test_what_is_not_installed_is_told_with_the_command_that_brings_it(monkeypatch, asked, command, installed_by):
    monkeypatch.setattr(devices.Host, "here", lambda: host.Host("Linux", "x86_64", (3, 12), installed_by, False))
    wanted = f"python3 workshop.py {command}"  # conda's own way knows no such choice
    assert devices.explain_missing(*asked).endswith(wanted)


def test_of_a_macs_two_gpus_the_card_is_taken():
    """What clinfo tells of a MacBook Pro with a Radeon Pro 560X: https://github.com/xmrig/xmrig/issues/1394."""
    import pyopencl as cl

    def listed(name, kind, gib, shares_memory):
        facts = {"name": name, "type": kind, "global_mem_size": gib * 2**30, "host_unified_memory": shares_memory}
        platform = types.SimpleNamespace(version="OpenCL 1.2 (Aug 30 2020 23:06:50)")
        return frameworks.describe_opencl(types.SimpleNamespace(platform=platform, vendor="", **facts))

    cpu = listed("Intel(R) Core(TM) i7-8750H CPU @ 2.20GHz", cl.device_type.CPU, 16, True)
    intel = listed("Intel(R) UHD Graphics 630", cl.device_type.GPU, 1.5, True)
    radeon = listed("AMD Radeon Pro 560X Compute Engine", cl.device_type.GPU, 4, False)
    assert min([cpu, intel, radeon], key=preference) == radeon


def test_of_a_processors_drivers_intels_is_taken_then_the_newest_pocl():
    def listed(vendor, version, computes="right"):
        return Device("opencl", "", "AMD EPYC", "cpu", vendor=vendor, version=version, computes=computes)

    intel = listed("Intel(R) Corporation", "OpenCL 3.1 LINUX")
    debian = listed("AuthenticAMD", "OpenCL 3.0 PoCL 3.1+debian")
    pip = listed("AuthenticAMD", "OpenCL 3.0 PoCL 3.0-rc2")
    newest = listed("GenuineIntel", "OpenCL 3.0 PoCL 10.0")
    assert sorted([pip, newest, debian, intel], key=preference) == [intel, newest, debian, pip]
    chosen = dataclasses.replace(pip, chosen=True)  # by PYOPENCL_CTX
    assert sorted([intel, chosen], key=preference) == [chosen, intel]
    wrong = dataclasses.replace(intel, computes="wrong: by up to 3")
    assert pick([Answer("opencl", "ok", "", (wrong, pip, debian))]) == debian
    assert "Intel's driver" in str(intel)
