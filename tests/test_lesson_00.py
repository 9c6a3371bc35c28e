"""Lesson 00's loads: real work on every framework that is installed here, counted, and done when it returns."""

import subprocess
import sys
import time

import numpy as np
import pytest
from on_backend import BACKENDS, seen  # noqa: F401  (`seen` is a fixture)

from helpers.compute import devices
from helpers.compute.devices import Device
from helpers.doctor.monitor import Monitor, Reading, Samples
from helpers.errors import WorkshopError
from helpers.lessons import lesson_00

WORK = """
import sys, time
from helpers.compute import devices
from helpers.lessons import lesson_00
device = devices.pick([devices.ask(sys.argv[1])])
work = lesson_00.keep_busy(device)
before = time.process_time()
for _ in range(5):  # a slice is sized by the clock, and a busy machine leaves it little of the processor
    assert work() is None
print("seconds of processor time:", time.process_time() - before, "on", device.kind)
"""


def test_the_load_of_a_backend_is_real_work(seen):  # noqa: F811
    """On a CPU the work is processor time of this process; on a GPU it is waited for."""
    load = seen["loaded"]
    assert load["returned"] == [None] * 5 and (load["kind"] != "cpu" or load["seconds"] > 0.001)


@pytest.mark.parametrize("framework", [name for name in lesson_00.LOADS if name not in BACKENDS])
def test_the_load_is_real_work_that_is_done_when_it_returns(framework):
    if not devices.installed(framework):
        pytest.skip(f"{framework} is not installed here")
    done = subprocess.run([sys.executable, "-c", WORK, framework], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    seconds, kind = done.stdout.split(":")[1].split(" on ")
    assert kind.strip() != "cpu" or float(seconds) > 0.001
    assert done.stderr == ""


def test_loads_count_what_they_did():
    device = devices.pick([devices.ask("opencl")])
    asked, loads = lesson_00.Load.calls, lesson_00.loads(device)
    assert [load.rate for load in loads.values()] == [0.0] * 3
    for load in loads.values():
        load()
    one, _, most = (load.rate for load in loads.values())
    assert lesson_00.Load.calls == asked + 3 and one > 1e6 and most > 2 * one


def test_a_function_that_never_returns_is_stopped(monkeypatch, capsys):
    def wait():
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(lesson_00, "PATIENCE", 1.5)
    lesson_00.check_controls(wait, wait)
    output = capsys.readouterr().out
    assert output.startswith("not yet") and "1.5 s" in output


def test_every_case_of_a_percentile_has_one_answer_by_all_recipes(monkeypatch):
    tried = []
    monkeypatch.setattr(lesson_00.checks, "judge_function", lambda *given: tried.append(given) or "")
    lesson_00.check_is_used(None)
    [(_, right, cases)] = tried
    for idle, busy in cases(np.random.default_rng(0)):
        if min(len(idle), len(busy)) >= 3:
            low, high = lesson_00._quarters(busy)[:, 0], lesson_00._quarters(idle)[:, 1]
            assert {bool(a - b > 5) for a in low for b in high} == {right(idle, busy)}, (idle, busy)


def test_a_right_answer_judges_the_learners_own_device(capsys):
    def is_used(idle, busy):
        return len(idle) >= 3 <= len(busy) and np.percentile(busy, 25) - np.percentile(idle, 75) > 5

    nothing = (None,) * 6
    values = (0.0, 1.0, 2.0, 40.0, 46.0, 50.0)
    watched = Samples("x", "x", (0, 1, 2, 3, 4, 5), ("idle",) * 3 + ("busy",) * 3, values, nothing)
    lesson_00.check_is_used(is_used, watched)
    assert "your own device, 3 idle and 3 busy samples: True" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_move_to_the_cpu_is_not_shown(kind, monkeypatch, capsys):
    class Idle(Monitor):
        source, description = "a fake tool", "a fake GPU"

        def read(self):
            return Reading(1.0)

    titles = []
    monkeypatch.setattr(lesson_00, "idle_and_busy", lambda samples, title: titles.append(title))
    monkeypatch.setattr(lesson_00, "keep_busy", lambda device: lambda: time.sleep(0.05))
    chip = Device("opencl", "0:0", "AMD EPYC", "cpu")
    device = chip if kind == "cpu" else Device("opencl", "1:0", "a GPU", "gpu")
    lesson_00.moved_to_cpu([devices.Answer("opencl", "ok", devices=(chip,))], device, Idle())
    assert capsys.readouterr().out.startswith("Not shown: utilisation was 0 %" if kind == "cpu" else "Not shown")
    assert titles[0].startswith("Drawn, not measured" if kind == "cpu" else "a GPU")


def test_what_does_not_stop_a_learner_is_passed_on():
    def wait():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lesson_00.check_controls(wait, wait)


def test_every_recipe_for_percentiles_is_among_those_that_agree():
    rows = lesson_00._quarters([1, 2, 3, 4, 5, 6, 7, 8]).tolist()
    assert [2.25, 6.75] in rows and [2.75, 6.25] in rows  # statistics' own, and NumPy's


def test_a_framework_without_a_load_says_what_to_choose():
    with pytest.raises(WorkshopError, match="no load for plaidml") as caught:
        lesson_00.keep_busy(Device("plaidml", "llvm_cpu.0", "AMD EPYC", "cpu"))
    assert "opencl" in caught.value.next
