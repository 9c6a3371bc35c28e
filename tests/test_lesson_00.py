"""Lesson 00's loads: real work on every framework that is installed here, counted, and done when it returns."""

import contextlib
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from on_backend import BACKENDS, record  # noqa: F401  (`record` is a fixture)

from helpers import devices
from helpers.devices.monitor import Monitor, NoMonitor
from helpers.judge import checks
from helpers.lessons import lesson_00

WORK = """
import sys, time
from helpers import devices
from helpers.lessons import lesson_00
device = devices.pick([devices.ask(sys.argv[1])])
work = lesson_00.make_work(device)
before = time.process_time()
for _ in range(5):  # a slice is sized by the clock, and a busy machine leaves it little of the processor
    assert work() is None
print("seconds of processor time:", time.process_time() - before, "on", device.kind)
"""


def test_the_load_of_a_backend_is_real_work(record):  # noqa: F811
    """On a CPU the work is processor time of this process; on a GPU it is waited for."""
    load = record["loaded"]
    assert load["returned"] == [None] * 5 and (load["kind"] != "cpu" or load["seconds"] > 0.001)


@pytest.mark.slow
@pytest.mark.parametrize("framework", [name for name in devices.FRAMEWORKS if name not in BACKENDS])
def test_the_load_is_real_work_that_is_done_when_it_returns(framework):
    if not devices.is_installed(framework):
        pytest.skip(f"{framework} is not installed here")
    done = subprocess.run([sys.executable, "-c", WORK, framework], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    seconds, kind = done.stdout.split(":")[1].split(" on ")
    assert kind.strip() != "cpu" or float(seconds) > 0.001
    assert done.stderr == ""


def test_a_function_that_never_returns_is_stopped(monkeypatch, capsys):
    def fool():
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(lesson_00, "PATIENCE", 1.5)
    lesson_00.check_fool(fool)
    output = capsys.readouterr().out
    assert output.startswith("not yet") and "1.5 s" in output


def test_what_does_not_stop_a_learner_is_passed_on():
    def fool():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lesson_00.check_fool(fool)


@pytest.mark.parametrize(
    "multiply", [np.matmul, np.dot, lambda a, b: a.dot(b), lambda a, b: np.einsum("ij,jk", a, np.atleast_2d(b))]
)
def test_every_usual_way_to_square_a_matrix_is_counted(multiply):
    matrix = np.eye(3, dtype=np.float32).view(lesson_00._Counted)
    before = lesson_00._Counted.products
    square = multiply(matrix, matrix)
    np.matmul(matrix, matrix, out=np.empty_like(matrix))
    assert lesson_00._Counted.products == before + 2
    multiply(square, square), multiply(matrix, matrix[0]), matrix * 2  # other products, and no product
    assert (square == np.eye(3)).all() and lesson_00._Counted.products == before + 2


@pytest.mark.parametrize(("clock", "is_refused"), [(time.perf_counter, False), (time.process_time, True)])
def test_a_clock_of_processor_time_is_refused_however_busy_the_machine_is(clock, is_refused):
    def load(matrix, seconds):
        end = clock() + seconds
        while clock() < end:
            matrix @ matrix

    with pytest.raises(checks.NotYet, match="stands still") if is_refused else contextlib.nullcontext():
        lesson_00._judge_clock(load, "load")


def test_the_other_program_works_and_ends_with_its_input():
    with lesson_00.start_other_program() as work:
        before = time.process_time()
        work()
        assert time.process_time() - before < 0.1  # that was not this process
        children = psutil.Process().children()
    assert children and not any(child.is_running() for child in children)


class Counter(Monitor):
    """It shows 50 % whenever somebody has worked since its last look."""

    source, description = "a fake tool", "a fake GPU"
    worked = False

    def read(self):
        worked, self.worked = self.worked, False
        return 50.0 * worked

    def work(self):
        self.worked = True
        time.sleep(0.02)


def test_a_watching_ends_with_a_look_at_the_idle_device(monkeypatch):
    shown, watcher = [], Counter()
    samples = lesson_00.watch(watcher, {"work": watcher.work}, rest=0.5, busy=0.6)["work"]
    middle = {phase: samples.settled("utilization", phase) for phase in ("idle", "busy", lesson_00.AFTER)}
    assert {phase: max(values) for phase, values in middle.items()} == {"idle": 0, "busy": 50, lesson_00.AFTER: 0}
    assert samples.judge_usage().used and list(samples.times) == sorted(samples.times)
    monkeypatch.setattr(lesson_00, "show", lambda drawn, alt: shown.append(alt))
    nothing = lesson_00.watch(NoMonitor("no tool"), {"blind": watcher.work}, rest=0.1, busy=0.1)["blind"]
    lesson_00.draw_curves({"work": samples, "blind": nothing}, "percent")
    assert "work: Used" in shown[0] and "blind: Cannot tell" in shown[0]
