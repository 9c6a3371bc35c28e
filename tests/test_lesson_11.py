"""Lesson 11's own machinery: the work to be timed, the busy neighbour, the figures, and what is missing."""

import math
import re
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from helpers.compute import devices
from helpers.lessons import lesson_11 as lesson
from helpers.measure import published
from helpers.ranking import Ceiling, Row


@pytest.fixture
def shown(monkeypatch):
    """Collect the alternative texts of the figures that are shown."""
    texts = []

    def keep(drawn, alt):
        drawn.canvas.draw()  # so that what cannot be drawn fails here
        texts.append(alt)

    monkeypatch.setattr(lesson, "show", keep)
    return texts


def row(task, speed, framework="jax", kind="cpu", ceiling=200.0, why_not=""):
    amount = {"MLP training": 128.0, "CNN training": 128.0}.get(task, 2e9)
    scale = 1.0 if task.endswith("training") else 1e9
    runs = () if why_not else ((amount / scale / speed,) * 5,)
    name = "AMD EPYC (JAX, CPU)" if kind == "cpu" else "Some GPU (JAX)"
    top = None if why_not else Ceiling("float32 peak (OpenCL)", ceiling, "GFLOP/s")
    return Row(task, framework, "0", name, name.partition(" (")[0], kind, amount=amount, runs=runs, why_not=why_not,
               ceiling=top)  # fmt: skip


# ------------------------------------------------------------------------------------------------ the work to be timed


def test_the_product_is_computed_by_jax():
    work = lesson.product(64)
    result = work.wait(work.start())
    assert result.shape == (64, 64) and work.operations == 2 * 64**3 and work.note == ""
    matrix = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    assert np.allclose(np.asarray(result), matrix @ matrix, rtol=1e-4)


def test_without_jax_a_thread_takes_its_place(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda module: module != "jax")
    work = lesson.product(256)
    assert work.note.startswith("skipped: JAX is not installed here; to have it:")
    assert "in a thread" in work.device
    assert work.wait(work.start()).shape == (256, 256)
    work.wait(work.start())  # once more: a second start has a thread, too


def test_a_jax_that_does_not_start_is_told_and_a_thread_takes_its_place(monkeypatch):
    def broken(framework):
        raise RuntimeError("Unable to initialize backend 'cuda': no device\nmore")

    monkeypatch.setattr(devices, "in_this_process", broken)
    work = lesson.product(64)
    assert work.note.startswith("skipped: JAX does not compute here (Unable to initialize backend 'cuda': no device)")
    assert work.wait(work.start()).shape == (64, 64)


def test_the_neighbour_keeps_cores_busy_and_goes():
    before = {child.pid for child in psutil.Process().children()}
    with lesson.busy_neighbour():
        busy = [child for child in psutil.Process().children() if child.pid not in before]
        assert busy and all(child.status() != psutil.STATUS_ZOMBIE for child in busy)
        first = sum(child.cpu_times().user for child in busy)
        time.sleep(0.5)
        assert sum(child.cpu_times().user for child in busy) > first
    assert not any(child.is_running() for child in busy)
    with lesson.busy_neighbour(False):
        assert {child.pid for child in psutil.Process().children()} <= before


def test_the_neighbour_goes_when_the_block_fails_and_by_itself():
    with pytest.raises(ZeroDivisionError), lesson.busy_neighbour():
        children = psutil.Process().children()
        raise ZeroDivisionError
    assert not any(child.is_running() and "time.time" in " ".join(child.cmdline()) for child in children)
    code = "import time, helpers.lessons.lesson_11 as lesson\nwith lesson.busy_neighbour(seconds=0.2): time.sleep(0.5)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# ---------------------------------------------------------------------------------------------------- what noise is


def test_a_drift_is_told_where_it_is_larger_than_the_spread():
    flat, slower, faster = [0.01, 0.0101, 0.0099] * 4, np.linspace(0.01, 0.02, 30), np.linspace(0.02, 0.01, 30)
    assert "no change in these" in lesson.clock_drift(flat, "x")
    assert "slower meanwhile" in lesson.clock_drift(slower, "x")
    assert "faster meanwhile" in lesson.clock_drift(faster, "x")
    wild = [0.01, 0.06, 0.012, 0.05, *[0.03] * 4, 0.01, 0.02, 0.05, 0.012]
    assert "too noisy to say" in lesson.clock_drift(wild, "x")


def test_the_runs_are_drawn_with_their_phases(shown):
    phases = {"before": [0.01] * 5, "beside a busy neighbour": [0.02, 0.03, 0.04], "after": [0.01] * 4}
    lesson.draw_runs(phases, "One work")
    assert "beside a busy neighbour: median 30 ms, middle half 25 to 35 ms" in shown[0]


def test_progress_shows_one_line_in_a_notebook_and_every_line_elsewhere(monkeypatch, capsys):
    shown = []

    class Line:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    monkeypatch.setattr("IPython.display.display", lambda *_, **__: Line())
    tell = lesson.progress()
    tell("copy: 3 GB/s")
    tell("product: 4 GFLOP/s")
    assert shown == ["1: copy: 3 GB/s", "2: product: 4 GFLOP/s"]
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    lesson.progress()("copy: 3 GB/s")
    assert capsys.readouterr().out == "1: copy: 3 GB/s\n"


# ------------------------------------------------------------------------------------------------ the published figures


def test_one_published_speed_is_impossible_and_the_others_are_as_lesson_04_and_the_file_say():
    speeds = {one.who: one for one in lesson.published_speeds()}
    assert [one.who for one in speeds.values() if one.impossible] == ["GeForce 840M"]
    assert round(speeds["Radeon RX 480"].speed) == 68 and round(speeds["Tesla K80"].speed) == 75
    assert round(speeds["Radeon R9 M380"].speed, -2) == 500 and round(speeds["Core i5 3.2 GHz"].speed, -1) == 180
    assert round(speeds["GeForce 840M"].speed / speeds["GeForce 840M"].limit, 1) == 3.0
    assert len(speeds) == 5 and all(one.limit and not one.yours for one in speeds.values())


def test_the_impossible_figure_is_the_files():
    doubted = [one for one in published.figures("E") if one.plausible == "no" and one.value == 13.8]
    assert len(doubted) == 1 and "0.86" in doubted[0].why


def test_the_best_row_of_each_task_is_placed():
    rows = [row("float32 product", 80.0), row("float32 product", 3_000.0, kind="gpu", ceiling=9_000.0),
            row("MLP training", 0.0, why_not="not installed"), row("CNN training", 1_000.0)]  # fmt: skip
    product, cnn = lesson.your_speeds(rows)
    assert product.speed == pytest.approx(3_000) and product.limit == 9_000 and product.who == "yours: Some GPU"
    assert cnn.speed == pytest.approx(71.5, rel=0.01) and cnn.yours
    assert lesson.your_speeds([]) == []
    assert {one.who for one in lesson.your_speeds(rows, quiet=False)} == {
        "yours (noisy): Some GPU",
        "yours (noisy): AMD EPYC",
    }


def test_the_published_figures_are_drawn_without_and_with_the_learners(shown):
    lesson.draw_published(lesson.published_speeds())
    lesson.draw_published([*lesson.published_speeds(), *lesson.your_speeds([row("CNN training", 1_000.0)])])
    assert "GeForce 840M, matrix products, 2017: 2,609 GFLOP/s (302% of its limit)" in shown[0]
    assert "yours: AMD EPYC, CNN training, JAX" in shown[1] and "yours" not in shown[0]


def test_what_is_comparable_is_told_without_and_with_measured_rows():
    empty = str(lesson.comparable_table([row("CNN training", 0.0, why_not="x")]))
    assert empty.count("not measured here") == 3 and "no two kinds of device" in empty
    rows = [row("MLP training", 20_000.0), row("CNN training", 500.0), row("CNN training", 2_000.0, kind="gpu")]
    full = str(lesson.comparable_table([*rows, row("float32 product", 200.0)]))
    assert "50 µs" in full and "360 s, computed" in full and "180 s, computed" in full and "4 times" in full


# -------------------------------------------------------------------------------------------------------- its exercises


def test_the_simulated_device_keeps_its_own_time():
    device = lesson.Device(0.5, [0.02, 0.01, 0.03])
    device.start()
    assert device.clock() == pytest.approx(0.5, abs=1e-5)  # compiled, and the work only begun
    device.wait()
    assert device.clock() == pytest.approx(0.52, abs=1e-5)
    device.start()
    device.start()
    device.wait()
    assert device.clock() == pytest.approx(0.56, abs=1e-5)  # one after the other
    device.start()  # no more times: the last one is repeated
    device.wait()
    assert device.clock() == pytest.approx(0.59, abs=1e-5)


def test_a_wrong_clock_is_told_by_what_was_called(capsys):
    def never_waits(device, repeats):
        times = []
        for _ in range(1 + repeats):
            begin = device.clock()
            device.start()
            times.append(device.clock() - begin)
        low, middle, high = np.percentile(times[1:], [25, 50, 75])
        return low, middle, high

    lesson.check_fair_time(never_waits)
    said = capsys.readouterr().out
    assert "Calls: 6 of start(), 0 of wait(), 12 of clock(); at 5 of these starts a run was still in the queue" in said
    assert "The quartiles of these 5 runs are 1.0% of the median apart" in said


def test_a_limit_is_what_its_text_counts():
    for limit, counted in lesson.PEAKS.values():
        numbers = [float(one.replace(",", "")) for one in re.findall(r"[\d,.]+", counted.partition(" (")[0])]
        assert limit == pytest.approx(math.prod(numbers), rel=1e-3)


@pytest.mark.parametrize("given", [None, 3, "a text"])
def test_checks_refuse_what_is_no_answer_without_a_traceback(given, capsys):
    for check in (lesson.check_fair_time, lesson.check_score, lesson.check_claims, lesson.check_choose):
        check(given)
    assert capsys.readouterr().out.count("not ") >= 4


def test_the_claims_numbers_are_those_of_their_texts():
    numbers = {letter: claim.number for letter, claim in lesson.CLAIMS.items()}
    assert numbers["A"] == pytest.approx(3.03, abs=0.01) and numbers["B"] == pytest.approx(2.11, abs=0.01)
    assert (numbers["C"], numbers["D"], numbers["E"], numbers["F"]) == (64, np.median([900, 10, 10, 14, 10]), 0.3, 1.5)
    assert sorted(claim.verdict for claim in lesson.CLAIMS.values()) == sorted(lesson.FAULTS)


def test_the_lesson_imports_nothing_heavy():
    code = (
        "import sys, helpers.lessons.lesson_11; print({'jax', 'tensorflow', 'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
