"""monitor: this process' own load for real; the vendors' tools by fakes, since their hardware is not here."""

import hashlib
import itertools
import os
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.devices import Device, monitor, vendor_tools
from helpers.devices.monitor import Monitor, NoMonitor, NoReading, Samples, find, sample, watch

FAKES = Path(__file__).parent / "fakes"
CPU = Device("opencl", "0:0", "AMD EPYC", "cpu", vendor="AuthenticAMD", version="OpenCL 3.0 PoCL 3.1")
RTX_4090 = Device("opencl", "0:0", "NVIDIA GeForce RTX 4090", "gpu", vendor="NVIDIA Corporation")
RADEON = Device("opencl", "0:0", "AMD Radeon RX 7800 XT", "gpu", vendor="Advanced Micro Devices, Inc.")
ARC = Device("opencl", "0:0", "Intel Arc A770", "gpu", vendor="Intel(R) Corporation")
APPLE = Device("opencl", "0:0", "Apple M4 Max", "gpu", vendor="Apple")
posix = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Put fake tools, and nothing else, on PATH; returns the file that loads the fake GPU while it exists."""
    folder = tmp_path / "bin"
    folder.mkdir()
    load = tmp_path / "load"
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("FAKE_LOAD", str(load))

    def install(name, mode="works"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{FAKES}/fake_{name.replace("-", "_")}.py" "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("FAKE_MODE", mode)
        return load

    return install


def loading(load):
    """One slice of load for the fake GPU."""

    def work():
        load.touch()
        time.sleep(0.05)

    return work


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "anygpu-monitor"]


def made(idle, busy, lag=0.0):
    """Samples with these utilizations, one each 0.1 s."""
    times = tuple(n / 10 for n in range(len(idle) + len(busy)))
    phases = ("idle",) * len(idle) + ("busy",) * len(busy)
    return Samples("fake", "a fake monitor", times, phases, (*idle, *busy), lag)


# ---- the CPU, for real


def test_a_real_load_on_the_cpu_shows():
    block = bytes(2**22)
    with ThreadPoolExecutor(2) as pool:
        samples = watch(
            find(CPU),
            lambda: list(pool.map(hashlib.sha256, [block, block])),  # hashlib releases the interpreter's lock
            idle_seconds=1.0,
            busy_seconds=2.0,
        )
    # However little time other programs leave us: 5 % may be more than that, or than two of many cores.
    idle, busy = (statistics.quantiles(samples.settled("utilization", phase), n=4) for phase in ("idle", "busy"))
    assert busy[0] > idle[2], samples.judge_usage()
    assert set(samples.phases) == {"idle", "busy"} and list(samples.times) == sorted(samples.times)
    assert all(0 <= value < 150 for value in samples.utilization)
    assert not threads()


def test_neither_waiting_nor_the_load_of_another_process_is_ours():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            samples = watch(find(CPU), lambda: time.sleep(0.05), idle_seconds=0.7, busy_seconds=1.0)
        finally:
            other.kill()
    assert samples.judge_usage().used is False, samples.judge_usage()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_sampling_ends_when_the_work_raises(error):
    def work():
        raise error("no")

    with pytest.raises(error):
        watch(find(CPU), work, idle_seconds=0.2)
    assert not threads()


def test_the_work_runs_at_least_once_and_until_the_time_is_up():
    calls = []
    watch(NoMonitor("none"), lambda: calls.append(1), busy_seconds=0)
    assert calls == [1]
    watch(NoMonitor("none"), lambda: calls.append(time.sleep(0.01)), busy_seconds=0.2)
    assert len(calls) > 2


# ---- what samples prove


@pytest.mark.parametrize(
    ("idle", "busy", "used"),
    [
        ([0, 1, 0, 2, 1], [97, 99, 98, 100, 96], True),
        ([0, 0, 0], [0, 0, 0], False),
        ([0, 0, 0], [3, 3, 3], False),  # no spread, but nothing to speak of
        ([90, 91, 92], [95, 96, 97], False),  # somebody else is on the GPU
        ([10, 50, 90], [40, 60, 100], False),  # they overlap
        ([0, 0, 1], [30, 35, 96, 97, 98], True),  # others take part of the device: far apart, and clearly above
        ([97, 99, 98], [0, 1, 2], False),  # falls under load
        ([0, 0, 0], [0, 100, 0], False),  # one spike
        ([0, 0], [99, 99, 99], None),
        ([], [], None),
        ([None] * 4, [None] * 4, None),
    ],
)
def test_samples_prove_a_use_or_not(idle, busy, used):
    usage = made(idle, busy).judge_usage()
    assert usage.used is used, usage
    assert str(usage).startswith({True: "Used", False: "Not shown", None: "Cannot tell"}[used])


def test_the_start_of_each_phase_is_left_out_when_figures_trail():
    late = ([0] * 6, [0, 0, 0, 0, 99, 99, 99, 99, 99])  # the busy phase begins at 0.6 s, its figures 0.4 s later
    assert made(*late, lag=0.4).settled("utilization", "busy") == [99] * 5
    assert made(*late, lag=10).settled("utilization", "busy") == [99] * 5  # never more than half of the phase


@given(st.lists(st.floats(0, 100), min_size=3, max_size=30), st.floats(0, 4.9))
def test_a_device_that_hardly_changes_is_never_called_used(idle, more):
    assert made(idle, [value + more for value in idle]).judge_usage().used is False


def test_a_phase_goes_on_until_enough_is_left_after_the_lag_however_unevenly_the_samples_come():
    class Late(Monitor):
        source, description, lag = "late", "a monitor whose figures trail", 1.0

    sampler = monitor._Sampler(Late(), interval=0.1)
    sampler.phase = "busy"
    sampler.found += [(second, "busy", 99) for second in (0, 0.1, 0.2, 0.3, 2.5, 3.0)]
    long_ago = time.perf_counter() - 4
    assert sampler.needs_more(long_ago, 3)
    sampler.found.append((3.5, "busy", 99))
    assert not sampler.needs_more(long_ago, 3)


# ---- tools


@posix
def test_a_load_shows_by_a_tool(tools):
    load = tools("nvidia-smi")
    samples = watch(find(RTX_4090), loading(load), idle_seconds=3, busy_seconds=3)
    assert samples.judge_usage().used is True, samples.judge_usage()
    assert not threads()


@posix
@pytest.mark.parametrize(("pci", "index"), [("0000:2f:00.0", 1), ("0000:01:00.0", 0), ("", None)])
def test_twin_gpus_are_told_apart_by_address_or_else_it_says_so(tools, pci, index):
    tools("nvidia-smi", "twins")
    description = find(Device("torch", "cuda:0", "NVIDIA GeForce RTX 4090", "gpu", "NVIDIA", pci=pci)).description
    assert f"GPU {index or 0} " in description
    assert ("one of 2 GPUs" in description) is (index is None)


@posix
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("fails", "couldn't communicate with the NVIDIA driver"),
        ("garbage", "nvidia-smi lists no GPU"),
        ("nothing", "does not tell the utilization"),
    ],
)
def test_a_tool_that_is_no_use_becomes_no_monitor_with_the_reason(tools, mode, reason):
    tools("nvidia-smi", mode)
    watcher = find(RTX_4090)
    assert not watcher and reason in watcher.description


@posix
def test_a_tool_that_stops_answering_ends_the_sampling_but_not_the_lesson(tools, monkeypatch):
    load = tools("nvidia-smi", "hangs later")
    watcher = find(RTX_4090)
    monkeypatch.setattr(vendor_tools, "TIMEOUT", 2.0)
    samples = watch(watcher, loading(load), idle_seconds=0.5, busy_seconds=0.5)
    assert "did not answer" in samples.problem and "did not answer" in str(samples.judge_usage())
    assert samples.judge_usage().used is None
    assert not threads()


@pytest.mark.parametrize("failures", [2, 3])
def test_a_few_failures_do_not_end_the_sampling_three_in_a_row_do(failures):
    class Hiccups(Monitor):
        source = description = "a fake monitor"
        readings = itertools.count()

        def read(self):
            if 0 < next(self.readings) % 5 <= failures:
                raise NoReading("a hiccup")
            return 50.0

    samples = sample(Hiccups(), seconds=0.5, interval=0.01)
    assert samples.problem == ("a fake monitor stopped answering: a hiccup" if failures == 3 else "")
    assert (len(samples.times) > 3) is (failures == 2)


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="they have a tool for every GPU")
@pytest.mark.parametrize("device", [RTX_4090, ARC], ids=str)
def test_without_a_tool_there_is_no_monitor_and_the_work_runs_all_the_same(tools, device):
    watcher = find(device)
    assert not watcher and watcher.why
    calls = []
    samples = watch(watcher, lambda: calls.append(1), busy_seconds=0.01)
    assert calls and (samples.times, samples.utilization) == ((), ())
    assert samples.judge_usage().used is None and watcher.description in " ".join(str(samples.judge_usage()).split())
    assert sample(watcher, 0.1).times == ()


# ---- what each of them writes


@pytest.fixture
def two_radeons(tmp_path):
    """The processor's GPU and a card, by the files of Linux' driver."""
    for address, percent in {"0000:05:00.0": 3, "0000:2f:00.0": 95}.items():
        file = tmp_path / "sys/bus/pci/devices" / address / "gpu_busy_percent"
        file.parent.mkdir(parents=True)
        file.write_text(f"{percent}\n")
    return tmp_path


@pytest.mark.parametrize(("pci", "percent"), [("0000:2f:00.0", 95), ("0000:05:00.0", 3)])
def test_the_kernels_file_is_that_of_the_device(two_radeons, pci, percent):
    watcher = vendor_tools.AmdKernel(Device("torch", "cuda:0", "AMD Radeon", "gpu", "AMD", pci=pci), two_radeons)
    assert watcher.read() == percent and "may not" not in watcher.description


def test_a_radeon_of_which_the_address_is_unknown_is_told_with_a_doubt(two_radeons, tmp_path):
    assert "one of 2 GPUs" in vendor_tools.AmdKernel(RADEON, two_radeons).description
    with pytest.raises(vendor_tools.NoReading):
        vendor_tools.AmdKernel(RADEON, tmp_path / "without amdgpu")


@posix
@pytest.mark.parametrize(
    ("tool", "make", "percent"), [("ioreg", vendor_tools.Ioreg, 93), ("powershell", vendor_tools.WindowsCounters, 50)]
)
def test_what_macos_and_windows_write_is_read(tools, tool, make, percent):
    """Of Windows' engines those that compute are added up; one that copies does not count."""
    tools(tool).touch()
    assert make(APPLE).read() == percent
    tools(tool, "fails")
    with pytest.raises(vendor_tools.NoReading):
        make(APPLE).read()
