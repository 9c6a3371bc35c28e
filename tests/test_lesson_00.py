"""Lesson 00's loads: real work on every framework that is installed here, counted, and done when it returns."""

import subprocess
import sys
import time

import pytest

from helpers import devices
from helpers.devices import Device
from helpers.errors import WorkshopError
from helpers.lessons import lesson_00

WORK = """
import sys, time
from helpers import devices
from helpers.lessons import lesson_00
device = devices.pick([devices.ask(sys.argv[1])])
work = lesson_00.keep_busy(device)
before = time.process_time()
for _ in range(5):  # a slice is sized by the clock, and a busy machine leaves it little of the processor
    assert work() is None
print("seconds of processor time:", time.process_time() - before, "on", device.kind)
"""


@pytest.mark.parametrize("framework", lesson_00.LOADS)
def test_the_load_is_real_work_that_is_done_when_it_returns(framework):
    if not devices.installed(framework):
        pytest.skip(f"{framework} is not installed here")
    done = subprocess.run([sys.executable, "-c", WORK, framework], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    seconds, kind = done.stdout.split(":")[1].split(" on ")
    # On a CPU the work is processor time of this process; on a GPU it is waited for.
    assert kind.strip() != "cpu" or float(seconds) > 0.001
    assert done.stderr == "" or framework == "jax"


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
    assert "not yet: wait() had not returned after 1.5 s." in capsys.readouterr().out


def test_what_does_not_stop_a_learner_is_passed_on():
    def wait():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lesson_00.check_controls(wait, wait)


def test_every_recipe_for_percentiles_is_among_those_that_agree():
    rows = lesson_00._quarters([1, 2, 3, 4, 5, 6, 7, 8]).tolist()
    assert [2.25, 6.75] in rows and [2.75, 6.25] in rows  # statistics' own, and NumPy's


def test_a_framework_without_a_load_says_what_to_choose():
    with pytest.raises(WorkshopError, match="no load for onnxruntime") as caught:
        lesson_00.keep_busy(Device("onnxruntime", "CPUExecutionProvider", "AMD EPYC", "cpu"))
    assert "opencl" in caught.value.next
