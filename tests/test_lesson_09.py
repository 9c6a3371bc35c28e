"""Lessons 09 and 09b: messages between processes, trainings with lost processes, and nothing left behind."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import ROOT, devices
from helpers.commands import lesson_files
from helpers.errors import WorkshopError
from helpers.lessons import lesson_09 as lesson
from helpers.lessons import lesson_09_steps
from helpers.lessons.lesson_09b_exercises import Died
from helpers.running import worker
from helpers.training import data

NOTEBOOKS = [ROOT / "notebooks" / name for name in ("09-train-across-machines.ipynb", "09b-lose-a-worker.ipynb")]
needs_jax = pytest.mark.skipif(os.name == "nt" or not devices.is_installed("jax"), reason="needs JAX and POSIX signals")


@pytest.fixture(scope="module")
def functions():
    """The functions for processes that the notebooks show."""
    shown = {}
    for cell in (cell for notebook in NOTEBOOKS for cell in lesson_files.read(notebook).cells):
        found = re.match(r"def (\w+)\(process, addresses", cell.source)
        if cell.cell_type == "code" and found:
            source = cell.source.partition("\n\n\n")[0]
            shown[found[1]] = worker.Script(found[1], source).define()
    return SimpleNamespace(**shown)


@pytest.fixture(scope="module")
def batches():
    mnist = data.load_mnist()
    images = np.resize(mnist.x_train.reshape(-1, 784), (1024, 784)).reshape(-1, lesson.BATCH, 784)
    return {"images": images, "labels": np.resize(mnist.y_train, 1024).reshape(-1, lesson.BATCH)}


# ------------------------------------------------------------------------------------------------- runs and messages


def test_large_messages_both_ways_do_not_block_each_other():
    def swap(process, addresses):
        import numpy as np

        from helpers.lessons import lesson_09 as lesson

        peers = lesson.Peers(process, addresses)
        for other in {0, 1, 2} - {process}:
            peers.send(other, np.full(3_000_000, process, np.float32))
        return [float(peers.receive(other).sum()) / 3e6 for other in sorted({0, 1, 2} - {process})]

    assert lesson.run(swap, 3).results == [[1, 2], [0, 2], [0, 1]]


def test_who_does_not_know_the_key_is_not_answered():
    def knock(process, addresses):
        import os

        from helpers.lessons import lesson_09 as lesson

        if process == 1:
            os.environ["ANYGPU_KEY"] = "guessed"
        lesson.Peers(process, addresses)

    assert any("AuthenticationError" in failure for failure in lesson.run(knock, 2, check=False).failures)


def test_a_missing_framework_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(devices, "is_installed", lambda name: False)
    with pytest.raises(WorkshopError, match="JAX is not installed"):
        lesson.require_jax()


def test_the_gradient_is_the_slope_of_the_loss(batches):
    weights, x, y = lesson.make_initial_weights(), batches["images"][0], batches["labels"][0]
    gradient = lesson.compute_gradient(weights, x, y)[1]
    length = float(np.linalg.norm(gradient))
    before, after = (lesson.compute_gradient(weights + sign * 1e-2 * gradient / length, x, y)[0] for sign in (-1, 1))
    assert (after - before) / 2e-2 == pytest.approx(length, rel=0.02)


def test_parts_of_a_step_are_read_from_the_clocks_and_add_up():
    # Process 0 computes 1 s and waits 1 s for process 1; the exchange takes 1 s. Another program delays a few steps.
    notes, now = [[], []], 0.0
    for step in range(16):
        delay = 20.0 if step in (5, 9) else 0.1 * step
        for process, computes in enumerate((1.0, 2.0)):
            notes[process].append((now, now + computes, now + 2.5 + delay))
        now += 3 + delay
    parts = lesson_09_steps.measure_step_parts([notes])
    assert parts["step"] == pytest.approx(parts["compute"] + parts["wait"] + parts["exchange"])
    assert parts["step"] < 5
    assert (parts["compute"], parts["wait"]) == pytest.approx((1.5, 0.5))


def time_steps(one, two, others):
    """Return series whose steps take `one` or `two` seconds, with a spread of a tenth."""
    series = {}
    for size, seconds in {1: one, 2: two}.items():
        begins = np.cumsum([seconds * (1 + 0.1 * (step % 2)) for step in range(24)])
        notes = [(begin, begin + seconds / 2, begin + seconds) for begin in begins]
        series[size] = 3 * [size * [notes]]
    return lesson.Timed(256, series, others)


@pytest.mark.parametrize(
    ("one", "two", "others", "gain"),
    [
        (1.0, 0.5, 0.0, "2 times as fast"),
        (0.5, 1.0, 0.1, "2 times as long"),
        (1.0, 0.99, 0.0, "no claim"),
        (1.0, 0.5, 0.85, "no claim"),
        (1.0, 0.3, 0.5, "at least 1.67 times as fast"),
    ],
)
def test_two_processes_are_faster_only_where_neither_chance_nor_other_programs_explain_it(one, two, others, gain):
    timed = time_steps(one, two, others)
    assert timed.gain == gain
    assert ("no claim" in timed.describe()) == (gain == "no claim")
    assert timed.compute == pytest.approx(two / 2)


def test_a_time_line_shows_who_computed_when(monkeypatch):
    drawn = []
    monkeypatch.setattr(lesson_09_steps.plots, "draw_timeline", lambda shown, title: drawn.append(shown))
    quick, slow = ([(s, s + computes, s + 1.0) for s in range(9)] for computes in (0.25, 0.75))
    lesson.draw_steps({"synchronous": [quick, slow]}, "a title", 0.5)
    (spans,) = drawn[0].values()  # of one training
    assert next(span for span in spans if span[0] == "worker 0") == ("worker 0", "computes", 3, 3.25)
    for kind, seconds in (("computes", 0.25), ("sleeps", 0.5)):
        took = sum(until - start for name, what, start, until in spans if (name, what) == ("worker 1", kind))
        assert took == pytest.approx(5 * seconds)


def test_a_time_line_begins_with_the_worker_that_began_first(monkeypatch):
    drawn = []
    monkeypatch.setattr(lesson_09_steps.plots, "draw_timeline", lambda shown, title: drawn.append(shown))
    first, second = ([(s + late, s + late + 0.25, s + 1.0) for s in range(9)] for late in (0.0, 0.5))
    lesson.draw_steps({"synchronous": [first, second]}, "a title", 0.0)
    (spans,) = drawn[0].values()
    assert spans[0] == ("worker 0", "computes", 3, 3.25)


# ---------------------------------------------------------------------------------------------------- the trainings


def test_an_asynchronous_training_ends_for_both_workers_whoever_sent_the_last_gradient(functions, batches):
    one = {name: array[:1] for name, array in batches.items()}
    _, by = lesson.run(functions.asynchronous, 3, arguments={**one, "serve": lesson.serve}).results[2]
    assert len(by) == 2


def test_checkpoints_that_are_replaced_in_real_files_are_whole_after_every_death():
    source = next(c.source for c in lesson_files.read(NOTEBOOKS[1]).cells if c.source.startswith("def save_until"))
    function = worker.Script("save_until_killed", source.partition("\n\n\n")[0]).define()
    assert lesson.count_broken(function, 4, lesson.save, lesson.newest) == 0


@pytest.mark.slow
@needs_jax
def test_whenever_a_process_dies_the_same_weights_are_reached(functions, batches, tmp_path):
    """Sixteen steps: before there is a checkpoint, when it is written, before the last step."""
    batches = {name: np.concatenate([array, array]) for name, array in batches.items()}
    expected = lesson.train_alone(**batches, order=range(16))
    for at, begins in ((1, (0,)), (8, (0, 8)), (15, (8,))):
        given = {**batches, "steps": 16, "train": lesson.train, "folder": str(tmp_path / str(at))}
        Path(given["folder"]).mkdir()
        options = {"arguments": {**given, "dies_at": at}, "variables": lesson.JAX_ENV, "check": False}
        assert lesson.read_survivor_result(lesson.run(functions.train_together, 2, **options))["noticed"] < 30
        options = {"arguments": {**given, "dies_at": None}, "variables": lesson.JAX_ENV}
        resumed = lesson.run(functions.train_together, 2, **options).result
        assert resumed["begun"] in begins
        for actual, wanted in zip(resumed["weights"], expected, strict=True):
            # Rounding may switch a ReLU on or off, which makes up to 3e-4; eight steps less make 0.01.
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=2e-3)


# ------------------------------------------------------------------------------------------------------ the exercises


def test_a_disk_keeps_the_first_part_of_a_write_that_dies():
    disk = lesson.Disk()
    disk.write("a", [1, 2, 3])
    disk._dies_after = disk._lived + 2  # moments: to begin, and the first number
    for act in (lambda: disk.write("a", [4, 5, 6]), lambda: disk.replace("a", "b"), lambda: disk.delete("a")):
        with pytest.raises(Died):  # the dead do nothing more
            act()
    assert (disk.names(), disk.read("a")) == (["a"], [4])
