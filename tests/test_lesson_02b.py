"""helpers.lessons.lesson_02b: the block's sentences, the tuner; lesson_02b_race: who may claim what."""

import math

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import opencl
from helpers.errors import WorkshopError
from helpers.judge.checks import NotYet
from helpers.lessons import lesson_02, lesson_02b, lesson_02b_race
from helpers.measure import records
from helpers.measure.timing import Measurement


@pytest.fixture(scope="module")
def bench():
    context = cl.Context([opencl.pick_device()])
    yield lesson_02.MatmulBenchmark(cl.CommandQueue(context), 64)
    del context  # Intel's driver forgets a context that only its queue still holds


def launch_of(bench, source=lesson_02.MULTIPLY):
    kernel = cl.Kernel(opencl.build(bench.queue.context, source), "multiply")

    def launch(a, b, c, m, n, k):
        kernel(bench.queue, (n, m), None, a, b, c, np.int32(m), np.int32(n), np.int32(k))

    return launch


def time_as(label, *seconds, device="AMD EPYC (PoCL 3.1, OpenCL, CPU)"):
    return Measurement(label, device, seconds)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("a[row * k + i * ROWS + y]", "a[(row + y) * k + i]", "as if A's panels held whole rows"),
        ("i * ROWS + y", "i * ROWS", "as if all rows of a block used the number of A's first row"),
        ("i < k", "i < k - 1", "as if the last i were left out"),
    ],
)
def test_a_known_mistake_in_the_block_is_named_beside_its_numbers(old, new, named):
    assert old in lesson_02b.BLOCK
    with pytest.raises(NotYet, match=r"A's row .* B's column .* expected") as refused:
        lesson_02b.judge_block(lesson_02b.BLOCK.replace(old, new))
    assert named in str(refused.value)


def test_another_wrong_block_is_given_no_name():
    with pytest.raises(NotYet) as refused:
        lesson_02b.judge_block(lesson_02b.BLOCK.replace("of_a * of_b[x]", "1.5f * of_a * of_b[x]"))
    assert "expected" in str(refused.value) and "as if" not in str(refused.value)


def test_a_wrong_product_is_no_candidate(bench):
    lesson_02b_race.refuse_wrong(bench, launch_of(bench))
    with pytest.raises(WorkshopError, match="row 0, column 0"):
        lesson_02b_race.refuse_wrong(bench, launch_of(bench, lesson_02.MULTIPLY.replace("sum = 0", "sum = 1")))
    with pytest.raises(WorkshopError, match="is nan"):
        lesson_02b_race.refuse_wrong(bench, lambda *_: None)


def test_the_search_says_how_the_winner_did_again_and_who_is_as_good():
    seconds = {"a": 1.0, "b": 1.04, "c": 1.2}
    text = lesson_02b_race.describe_search(seconds, "a", 1.1, luck=0.05)
    assert "10.0 % slower" in text and "1 of the others" in text
    assert "2.0 % faster" in lesson_02b_race.describe_search(seconds, "a", 0.98, luck=0.05)


def race_with(bench, monkeypatch, **runs):
    names = {"mine": "mine", "twin": "mine, once more", "numpy": "NumPy", "clblast": "CLBlast"}
    monkeypatch.setattr(bench, "runs", {names[name]: time_as(names[name], *each) for name, each in runs.items()})


def test_no_gain_is_claimed_that_the_kernel_shows_beside_itself(bench, monkeypatch, capsys):
    steady = {"mine": (1.0,) * 13, "twin": (1.2,) * 13, "numpy": (1.1,) * 13}
    race_with(bench, monkeypatch, **steady)
    lesson_02b_race.describe_race(bench, "mine", math.nan)
    assert "no claim" in capsys.readouterr().out
    race_with(bench, monkeypatch, **steady | {"twin": (1.01,) * 13})
    table, share = lesson_02b_race.describe_race(bench, "mine", math.nan)
    said = capsys.readouterr().out
    assert "faster" in said and "no claim" not in said and "peak" not in said
    assert share == pytest.approx(110) and [row[0] for row in table.rows] == ["mine", "mine, once more", "NumPy"]


def test_a_product_above_the_peak_is_refused_and_not_recorded(bench, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    race_with(bench, monkeypatch, mine=(1.0,) * 13, twin=(1.0,) * 13, numpy=(2.0,) * 13, clblast=(1.5,) * 13)
    speed = bench.gflops("mine")
    lesson_02b_race.describe_race(bench, "mine", 0.9 * speed)
    assert "refused" in capsys.readouterr().out and not records.read_notes(tmp_path / "notes", "02b")
    lesson_02b_race.describe_race(bench, "mine", 2 * speed)
    assert "50 % of the measured peak, 150 % of CLBlast" in capsys.readouterr().out
    peak, library = records.read_notes(tmp_path / "notes", "02b")
    assert (peak.value, library.value, peak.unit) == (pytest.approx(50), pytest.approx(150), "%")


def test_the_race_runs_the_product_twice_beside_each_library(bench, monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    monkeypatch.setattr(lesson_02b_race.timing, "SETTLE", 0.0)
    runs = lesson_02b_race.race(bench, "mine", launch_of(bench), repeats=3)
    assert next(iter(runs)) == "mine" and {"NumPy", "mine, once more"} <= set(runs) and "NumPy, one thread" not in runs
    assert {len(run.seconds) for run in runs.values()} == {3}
    assert {note.label for note in records.read_notes(tmp_path / "notes", "02b")} == set(runs)
