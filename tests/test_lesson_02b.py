"""helpers.lessons.lesson_02b: the block's sentences, the tuner; lesson_02b_race: who may claim what."""

import math

import numpy as np
import pytest
from test_lesson_02 import launch_of

from helpers.errors import WorkshopError
from helpers.judge.checks import NotYet
from helpers.lessons import lesson_02, lesson_02b, lesson_02b_gpu, lesson_02b_race, lesson_02b_tuner
from helpers.measure import records
from helpers.measure.tables import Table
from helpers.measure.timing import Measurement


@pytest.fixture(scope="module")
def bench(queue):
    return lesson_02.MatmulBenchmark(queue, 64)


def time_as(label, *seconds, device="AMD EPYC (PoCL 3.1, OpenCL, CPU)"):
    return Measurement(label, device, seconds)


def run_thirteen_times(median):
    """Return the seconds of 13 runs whose middle half spans 6 % of the median."""
    return tuple(median * (1 + step / 100) for step in range(-6, 7))


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("vector sums[ROWS][VECTORS], of_b", "volatile vector sums[ROWS][VECTORS]; vector of_b", "volatile"),
        ("vector sums[ROWS][VECTORS], of_b", "__local vector sums[ROWS][VECTORS]; vector of_b", "local memory"),
        ("of_a * of_b[x];", "of_a * of_b[x]; C(y, x) = sums[y][x];", "Store C once"),
    ],
)
def test_sums_that_must_lie_in_memory_are_refused(old, new, word):
    assert old in lesson_02b.BLOCK
    with pytest.raises(NotYet, match=word):
        lesson_02b.judge_block(lesson_02b.BLOCK.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("A(y, i)", "a[(row + y) * k + i]", "as if A were not packed"),
        ("A(y, i)", "A(0, i)", "as if all rows of a block used the number of A's first row"),
        ("i < k", "i < k - 1", "as if the last i were left out"),
        ("sums[y][x] +=", "sums[y][x] =", "as if only the last i counted"),  # Intel's driver returns garbage
    ],
)
def test_a_known_mistake_in_the_block_is_named_beside_its_numbers(old, new, named):
    assert old in lesson_02b.BLOCK
    with pytest.raises(NotYet, match=r"A's row .* B's column .* expected") as refused:
        lesson_02b.judge_block(lesson_02b.BLOCK.replace(old, new))
    assert named in str(refused.value)


@pytest.mark.parametrize(("kept", "remark"), [(2, "`for (int x = 0; x < VECTORS; x++)` may be slower"), (7, None)])
def test_a_block_whose_loops_are_not_written_out_is_right_with_a_remark(kept, remark):
    parts = lesson_02b.BLOCK.split("#pragma unroll")
    said = lesson_02b.judge_block("#pragma unroll".join(parts[: kept + 1]) + "".join(parts[kept + 1 :]))
    assert remark in said if remark else "slower" not in said


def test_another_wrong_block_is_given_no_name():
    with pytest.raises(NotYet) as refused:
        lesson_02b.judge_block(lesson_02b.BLOCK.replace("of_a * of_b[x]", "1.5f * of_a * of_b[x]"))
    assert "expected" in str(refused.value) and "as if" not in str(refused.value)


def test_a_wrong_product_is_no_candidate(bench):
    lesson_02b_race.refuse_wrong(bench, launch_of(bench))
    for old, new in (("sum = 0", "sum = 1e-2f"), ("b[i * n + column]", "b[column * n + i]")):
        assert old in lesson_02.MULTIPLY
        with pytest.raises(WorkshopError, match="row 0, column 0"):
            lesson_02b_race.refuse_wrong(bench, launch_of(bench, lesson_02.MULTIPLY.replace(old, new)))
    with pytest.raises(WorkshopError, match="is nan"):
        lesson_02b_race.refuse_wrong(bench, lambda *_: None)


def test_the_search_says_how_the_winner_did_again():
    seconds = {"a": 1.0, "b": 1.04, "c": 1.2}
    assert "1.1 times as long" in lesson_02b_race.describe_search(seconds, "a", 1.1)
    assert "4.4 times as long" in lesson_02b_race.describe_search(seconds, "a", 4.4)


def time_finals(monkeypatch, bench, others=0.0, **seconds):
    timed = {name: time_as(name, *run_thirteen_times(each)) for name, each in seconds.items()}
    monkeypatch.setattr(lesson_02b_race.timing, "measure_interleaved", lambda *_, **__: dict(timed))
    monkeypatch.setattr(lesson_02b_race.timing.Load, "__exit__", lambda load, *_: setattr(load, "others", others))
    launches = dict.fromkeys((name for name in seconds if name != "twin"), launch_of(bench))
    return lesson_02b_race.run_finals(bench, launches, 13)


def test_the_finals_name_those_that_tie_with_the_fastest(bench, monkeypatch, capsys):
    leaders = time_finals(monkeypatch, bench, a=1.0, b=0.85, c=0.9, d=1.5, twin=1.05)
    assert leaders == ["b", "c"] and "of 4: b" in capsys.readouterr().out
    assert time_finals(monkeypatch, bench, a=1.0, b=0.8, c=0.9, twin=1.0) == ["b"]
    assert time_finals(monkeypatch, bench, others=0.6, a=1.0, b=0.5, twin=1.0) == ["b", "a"]
    assert "2.5 times as long" in capsys.readouterr().out
    assert time_finals(monkeypatch, bench, others=0.6, a=1.0, b=0.1, twin=1.0) == ["b"]
    # the same kernel differs clearly from itself
    assert time_finals(monkeypatch, bench, a=1.0, b=0.8, c=0.9, twin=1.2) == ["b", "c", "a"]


def test_a_race_stands_beside_the_recorded_one(monkeypatch, tmp_path):
    numbers = {"mine": 40_500, "cuBLAS": 45_000, "CLBlast": 27_000, "peak": 60_000}
    known = {"lesson": "02b", "date": "2026-11-28"}
    notes = [records.Note(label, value, "GFLOP/s", **known) for label, value in numbers.items()]
    notes.append(records.Note("percent of cuBLAS", 90.0, "%", **known))
    records.write(tmp_path / "a.json", records.Machine("A GPU", "gpu", "1", "Linux", {}), notes)
    read = records.read_all
    monkeypatch.setattr(records, "read_all", lambda folder: read(tmp_path))
    table = Table([("mine", "1 GFLOP/s", ""), ("NumPy", "2 GFLOP/s", "")], ("", "here", "middle"))
    shown = lesson_02b_race.add_recorded(table, "mine", 2.0)
    assert shown.rows == [
        ("mine", "1 GFLOP/s", "", "40,500 GFLOP/s"),
        ("NumPy", "2 GFLOP/s", "", "not recorded"),
        ("CLBlast", "not here", "", "27,000 GFLOP/s"),
        ("cuBLAS", "not here", "", "45,000 GFLOP/s"),
        ("measured peak", "2 GFLOP/s", "", "60,000 GFLOP/s"),
    ]
    assert "A GPU" in shown.below[0] and shown.below[-1] == "mine, recorded: 90 % of cuBLAS."
    monkeypatch.setattr(records, "read_all", lambda folder: [])
    alone = lesson_02b_race.add_recorded(table, "mine", float("nan"))
    assert [row[-1] for row in alone.rows] == ["not recorded"] * 5 and alone.rows[-1][1] == "refused"
    assert not alone.below


def test_candidates_are_drawn_also_beside_those_for_a_gpu(bench, capsys):
    candidates = [lesson_02b.Candidate(6, vectors, width, packed=True) for vectors in (1, 2) for width in (8, 16)]
    runs = {each: time_as(str(each), 1.0, 1.1, 2.0) for each in candidates}
    lesson_02b_race.draw_candidates(bench, runs)
    lesson_02b_race.draw_candidates(bench, {**runs, lesson_02b_gpu.SHAPES[0]: runs[candidates[0]]})
    lesson_02b_race.draw_equal(bench, [1.0, 1.2, 1.1])


def test_the_lead_of_the_best_is_beside_the_middle_one():
    assert "best of 3 equal kernels looks 10.0 % faster" in lesson_02b_race.describe_luck([1.0, 1.1, 1.2])


def report_of(choose):
    """Return a tuner that reports of the winner what `choose` makes of its new measurements, by a function."""

    def tune(candidates, build, measure):
        seconds = {}
        for each in candidates:
            try:
                seconds[each] = measure(build(each))
            except WorkshopError as error:
                print(error.what)
        keep = min(seconds, key=seconds.get)
        return seconds, keep, choose(lambda: measure(build(keep)))

    return tune


@pytest.mark.parametrize("count", [2, 3, 4])
def test_new_measurements_may_be_averaged_but_not_picked_by_their_luck(count):
    for fair in (np.mean, np.median, lambda new: new[0], lambda new: new[-1]):
        lesson_02b_tuner.judge_tuner(report_of(lambda again, fair=fair: fair([again() for _ in range(count)])))
    with pytest.raises(NotYet, match=f"the smallest of its {count} new measurements"):
        lesson_02b_tuner.judge_tuner(report_of(lambda again: min(again() for _ in range(count))))
    with pytest.raises(NotYet, match="expected the mean or the median"):
        lesson_02b_tuner.judge_tuner(report_of(lambda again: max(again() for _ in range(count))))


@pytest.mark.parametrize("failing", ["build", "measure"])
def test_a_tuner_that_hides_a_mistake_is_told_whose(failing):
    def tune(candidates, build, measure):
        for each in candidates:
            try:
                measure(build(each))
            except Exception as error:
                print(each, error)

    search = lesson_02b_tuner.Search(np.random.default_rng(0), 3, ())
    with pytest.raises(NotYet, match=f"for which {failing} raises a TypeError"):
        lesson_02b_tuner._refuse_hidden_error(tune, search, failing)


def race_with(bench, monkeypatch, **runs):
    names = {"mine": "mine", "twin": "mine, once more", "numpy": "NumPy", "clblast": "CLBlast"}
    monkeypatch.setattr(bench, "runs", {names[name]: time_as(names[name], *each) for name, each in runs.items()})
    monkeypatch.setattr(bench, "others", 0.0)


def test_no_gain_is_claimed_that_the_kernel_shows_beside_itself(bench, monkeypatch, capsys):
    mine, pair = run_thirteen_times(1.0), ("NumPy", "mine")
    race_with(bench, monkeypatch, mine=mine, twin=run_thirteen_times(1.2), numpy=run_thirteen_times(1.1))
    lesson_02b_race.describe_race(bench, "mine", math.nan)
    assert "no claim" in capsys.readouterr().out
    assert math.isnan(lesson_02b_race.compute_gain(bench, ("mine", "mine, once more"), pair))
    lesson_02b_race.compare_prediction(2, math.nan, "times as fast")
    assert "no claim" in capsys.readouterr().out
    race_with(bench, monkeypatch, mine=mine, twin=run_thirteen_times(1.01), numpy=run_thirteen_times(1.1))
    table = lesson_02b_race.describe_race(bench, "mine", math.nan)
    said = capsys.readouterr().out
    assert "NumPy" in said and "no claim" not in said and "peak" not in said and "110 % of NumPy" in said
    assert [row[0] for row in table.rows][:2] == ["mine", "NumPy"]


def test_a_product_above_the_peak_is_compared_with_the_libraries_alone(bench, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    mine = (0.8, *(1.0,) * 12)  # the peak is a fastest run, so the fastest run stands beside it
    race_with(bench, monkeypatch, mine=mine, twin=(1.0,) * 13, numpy=(2.0,) * 13, clblast=(1.5,) * 13)
    speed = bench.gflops("mine") / 0.8
    lesson_02b_race.describe_race(bench, "mine", 0.9 * speed)
    said = capsys.readouterr().out
    assert "Measure again" in said and "of the measured peak" not in said and "150 % of CLBlast" in said
    (library,) = records.read_notes(tmp_path / "notes", "02b")
    assert (library.value, library.unit) == (pytest.approx(150), "%")
    lesson_02b_race.describe_race(bench, "mine", 2 * speed)
    said = capsys.readouterr().out
    assert "50 % of the measured peak" in said and "150 % of CLBlast" in said and "again" not in said


@pytest.mark.parametrize(("others", "said"), [(0.3, "mine is faster than CLBlast"), (0.4, "CLBlast: no claim")])
def test_beside_other_programs_nothing_is_said_of_numpy_and_its_threads(bench, monkeypatch, capsys, others, said):
    race_with(bench, monkeypatch, mine=(1.0,) * 13, twin=(1.0,) * 13, numpy=(50.0,) * 13, clblast=(1.5,) * 13)
    monkeypatch.setattr(bench, "others", others)
    lesson_02b_race.describe_race(bench, "mine", 10 * bench.gflops("mine"))
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed and "NumPy: no claim" in printed and "% of" not in printed.partition("processor")[2]
    del bench.runs["CLBlast"]
    lesson_02b_race.describe_race(bench, "mine", 10 * bench.gflops("mine"))
    assert "as fast" not in capsys.readouterr().out


def test_the_race_runs_the_product_twice_beside_each_library(bench, monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    monkeypatch.setattr(lesson_02b_race.timing, "SETTLE", 0.0)
    runs = lesson_02b_race.race(bench, "mine", launch_of(bench), repeats=3)
    assert next(iter(runs)) == "mine" and {"NumPy", "mine, once more"} <= set(runs)
    assert {len(run.seconds) for run in runs.values()} == {3}
    assert {note.label for note in records.read_notes(tmp_path / "notes", "02b")} == set(runs)
