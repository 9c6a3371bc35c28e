"""Lesson 11: its benchmark, the load of others, its figure, and its simulated device."""

import subprocess
import sys
import time
import types

import numpy as np
import psutil
import pyperf
import pytest

from helpers.errors import WorkshopError
from helpers.lessons import lesson_11 as lesson
from helpers.lessons import lesson_11_bench as bench
from helpers.measure import timing
from helpers.running import processes


def suite(speeds, others=0.0):
    """Return a suite with the given speeds, {(task, framework): speed in the task's unit}, five runs each."""
    about = {
        "unit": "second",
        "machine": "a processor, 2 cores",
        "others": others,
        "measured": "2026-11-23",
        "profile": "lab",
    }
    found = []
    for (task, framework), speed in speeds.items():
        names = {"name": f"{task}, {framework}", "task": task, "framework": framework, "device": f"chip ({framework})"}
        seconds = bench.TASKS[task][1] / speed
        run = pyperf.Run([seconds * k for k in (0.8, 0.9, 1, 1.1, 9)], metadata=about | names, collect_metadata=False)
        found.append(pyperf.Benchmark([run]))
    return pyperf.BenchmarkSuite(found)


# ---------------------------------------------------------------------------------------------------- who else computes


def test_the_load_of_others_leaves_out_our_own_work_and_counts_a_neighbors():
    def others():
        with timing.Load() as load:
            end = time.perf_counter() + 1.5
            while time.perf_counter() < end:
                pass  # our own work: it is not to be counted
        return load.others

    before = {child.pid for child in psutil.Process().children()}
    alone = others()
    with lesson.keep_cores_busy():
        busy = [child for child in psutil.Process().children() if child.pid not in before]
        beside = others()
    assert busy and not any(child.is_running() for child in busy)
    assert 0 <= alone <= 1 and beside >= 0.3  # the neighbor has a process for each core, and we have one thread


def test_the_neighbor_goes_when_the_block_fails_and_by_itself():
    with pytest.raises(ZeroDivisionError), lesson.keep_cores_busy():
        children = psutil.Process().children()
        raise ZeroDivisionError
    assert not any(child.is_running() and "time.time" in " ".join(child.cmdline()) for child in children)
    code = "import time, helpers.lessons.lesson_11 as lesson\nwith lesson.keep_cores_busy(seconds=0.2): time.sleep(0.5)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=600).returncode == 0


def test_the_processor_has_a_peak():
    cores, clock, units, numbers = lesson.read_processor()
    assert 1 <= cores <= psutil.cpu_count() and 0 < clock < 10 and units in (2, 4) and numbers in (4, 8, 16)


def test_a_clock_that_cannot_be_read_or_be_true_is_taken_as_3_ghz(monkeypatch):
    """As on Apple's M5, and on its M4."""

    def stop():
        raise SystemError("returned a result with an exception set")

    for cpu_freq in (stop, lambda: None, lambda: types.SimpleNamespace(max=4.5, current=4.5)):
        monkeypatch.setattr(psutil, "cpu_freq", cpu_freq, raising=False)
        assert lesson.read_processor()[1] == 3.0
    monkeypatch.delattr(psutil, "cpu_freq")  # a virtual machine on Apple's chips
    assert lesson.read_processor()[1] == 3.0


# -------------------------------------------------------------------------------------------------------- the benchmark


def test_kernels_compute_right_and_a_wrong_result_is_noticed():
    device, works = bench.on_opencl(64)
    for work in works.values():
        event = work.start()
        event.wait()
        assert work.is_right(event)
        work.renew()
        assert not work.is_right(event)  # the last result belongs to other numbers
    assert "OpenCL" in device
    product = bench.Product(64)
    for wrong in (0, np.nan):
        assert not product.is_right(np.full((64, 64), wrong, np.float32))


def cut_factors(numbers, bits):
    """Return float32 numbers with only so many bits of their fraction; the rest is cut off."""
    return (numbers.view(np.uint32) & np.uint32(2**32 - 2 ** (23 - bits))).view(np.float32)


@pytest.mark.parametrize(("bits", "is_right"), [(10, True), (7, False)])  # TF32, bfloat16
def test_a_product_in_tf32_passes_and_one_in_bfloat16_does_not(bits, is_right):
    product = bench.Product()
    assert product.is_right(cut_factors(product.a, bits) @ cut_factors(product.b, bits)) == is_right


def answers_by_numpy_and_by_keras():
    import numpy as np

    from helpers import training
    from helpers.lessons import lesson_11_bench as bench
    from helpers.training import models

    training.start()
    network = models.build_cnn()
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1), dtype=np.uint8)
    by_numpy = bench.cnn_answers(network.get_weights(), images)
    return by_numpy, network.predict_on_batch(images)


@pytest.mark.slow
def test_the_networks_answers_by_numpy_are_those_of_keras():
    # A process of its own: TensorFlow crashes where OpenCL's drivers have loaded compilers before it.
    by_numpy, by_keras = processes.run(answers_by_numpy_and_by_keras, seconds=300).result
    assert np.allclose(by_numpy, by_keras, atol=1e-4)


def test_a_result_holds_every_run_and_nothing_that_names_the_owner(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("ANYGPU_PROFILE", "preview")
    monkeypatch.setattr(bench, "KEPT", tmp_path / "build" / "lesson-11.json")
    result = bench.measure(["opencl"])
    assert [row.task for row in bench.rows(result)] == ["copy", "product"]
    assert all(len(row.measured.seconds) == bench.SCOUT and row.speed > 0 for row in bench.rows(result))
    assert set(result.get_metadata()) == {"framework", "device", "machine", "others", "profile", "measured", "unit"}
    assert capsys.readouterr().out == "5 runs each: OpenCL\n"
    kept = pyperf.BenchmarkSuite.load(str(bench.KEPT))
    assert [row.speed for row in bench.rows(kept)] == [row.speed for row in bench.rows(result)]
    (bench.KEPT.parent / "folder").touch()
    monkeypatch.setattr(bench, "KEPT", bench.KEPT.parent / "folder" / "kept.json")
    bench.measure(["opencl"])
    assert "cannot be kept" in capsys.readouterr().out


def test_the_fastest_framework_of_each_task_is_measured_again_and_that_counts(monkeypatch, tmp_path):
    asked = []

    def time_frameworks(names, repeats):
        asked.append((names, repeats))
        speeds = {("copy", name): {"opencl": 3, "jax": 2, "torch": 1}[name] / len(asked) for name in names}
        return {row.get_name(): row for row in suite(speeds)}

    monkeypatch.setenv("ANYGPU_PROFILE", "lab")
    monkeypatch.setattr(bench, "KEPT", tmp_path / "lesson-11.json")
    monkeypatch.setattr(bench, "_time_frameworks", time_frameworks)
    monkeypatch.setattr(bench.devices, "is_installed", lambda name: True)
    result = bench.measure(["opencl", "jax", "torch"])
    assert asked == [(["opencl", "jax", "torch"], 5), (["opencl"], timing.ENOUGH)]
    assert [(row.task, row.speed) for row in bench.rows(result)] == [("copy", pytest.approx(1.5))]


def test_a_wrong_result_in_any_run_gives_no_speed(monkeypatch):
    verdicts = iter([True, True, True, False])
    wrong = bench.Work(lambda: None, lambda: None, lambda _: next(verdicts))
    monkeypatch.setattr(bench, "on_opencl", lambda: ("a device", {"copy": wrong}))
    with pytest.raises(WorkshopError, match="copy wrong"):
        bench.time_tasks("opencl", 5)


def test_each_task_is_compared_with_the_reference_machine_by_its_fastest_framework():
    own = suite({("copy", "torch"): 2 * 46.79, ("copy", "opencl"): 46.79, ("product", "jax"): 4 * 428.7})
    assert bench.best(own)["copy"].speed == pytest.approx(2 * 46.79)  # the median: the late run does not count
    assert bench.ratios(own) == pytest.approx({"copy": 2, "product": 4})
    shown = bench.table(own)
    assert [(row[0], row[3]) for row in shown.rows] == [("copy", "2.00"), ("product", "4.00"), (bench.MEAN, "2.83")]
    assert "chip (torch)" in str(shown) and "Only 2 of 4 tasks" in str(shown)
    assert list(bench.REFERENCE) == list(bench.TASKS)


@pytest.mark.parametrize(
    ("factor", "others", "said"),
    [
        (0.5, 0.0, "Yours has place 3 of 3: NVIDIA H200 16.1, the reference 1, yours 0.5."),
        (2, 0.0, "Yours has place 2 of 3: NVIDIA H200 16.1, yours 2, the reference 1."),
        (0.5, 0.9, "Yours has place 3 of 3 or better:"),
    ],
)
def test_a_machine_is_ranked_beside_the_recorded_ones(factor, others, said):
    own = suite({(task, "jax"): factor * speed for task, speed in bench.REFERENCE.items()}, others)
    shown = bench.table(own)
    assert said in str(shown) and "recorded: NVIDIA H200" in str(shown)
    assert [row[-1].partition(" ")[0] for row in shown.rows] == ["1,220", "7,950", "42,600", "115,000", "16.1"]


# -------------------------------------------------------------------------------------------- figure and exercises


def test_the_figure_says_what_it_shows(monkeypatch):
    texts = []
    monkeypatch.setattr(lesson, "show", lambda drawn, alt: texts.append((drawn.canvas.draw(), alt)))
    lesson.draw_runs({"alone": [0.01] * 5, "beside": [0.02, 0.03, 0.04]}, "One work")
    assert "beside: median 30 ms, middle half 25 to 35 ms" in texts[0][1]


def make_clock(read, pick):
    """Return an answer to exercise 1 that reads one clock, and picks one number from the seconds of all runs."""

    def fair_time(device, repeats):
        seconds = []
        for _ in range(1 + repeats):
            begin = read(device)
            device.start()
            device.wait()
            seconds.append(read(device) - begin)
        return pick(seconds)

    return fair_time


@pytest.mark.parametrize(
    ("answer", "said", "unsaid"),
    [
        (make_clock(lambda device: time.perf_counter(), np.median), "no `device.clock()`", "leave out"),
        (make_clock(lesson.Device.clock, lambda seconds: np.median(sorted(seconds[1:])[:-1])), "came 0.01005", "even"),
        (make_clock(lesson.Device.clock, lambda seconds: np.median(sorted(seconds[1:])[1:])), "no other", "even"),
        (make_clock(lesson.Device.clock, lambda seconds: sorted(seconds[1:])[len(seconds) // 2 - 1]), "even", "leave"),
    ],
)
def test_a_wrong_clock_is_told_what_its_number_proves(answer, said, unsaid, capsys):
    lesson.check_fair_time(answer)
    verdict = capsys.readouterr().out.replace("\n    ", " ")
    assert verdict.startswith("not yet: ") and said in verdict and unsaid not in verdict


def not_written(device, number):
    raise NotImplementedError


@pytest.mark.parametrize(("cheat", "verdict"), [(not_written, "not done yet"), (None, "not "), ("a text", "not yet")])
def test_what_is_no_cheat_is_refused_without_a_traceback(cheat, verdict, capsys):
    lesson.check_cheat(cheat, lesson.benchmark)
    assert capsys.readouterr().out.startswith(verdict)
