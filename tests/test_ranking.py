"""The benchmark: what its score is, what it refuses, what a file of the gallery holds, and one real run."""

import copy
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import ROOT, ranking
from helpers.__main__ import main
from helpers.compute import products
from helpers.errors import WorkshopError
from helpers.maintain import fill_gallery
from helpers.ranking import figures, files, handover, measuring, networks, noise, tasks, worker
from helpers.ranking.results import Machine, Result, Row, with_ceilings
from helpers.ranking.tasks import Work

STILL = noise.Noise(
    tuple(noise.Moment(when, (0.01,) * 9, (0.002,) * 9) for when in ("before", "between", "after")), 2.0, 0.01, 0.0
)
PLACE = ("tensorflow", "/CPU:0", "Test CPU (TensorFlow, CPU)", "Test CPU", "cpu")
seconds = st.floats(1e-6, 1e3)


def row(task, speed=1.0, values=10, place=PLACE, **more):
    """Return a row whose every value is a speed, in the task's unit."""
    amount = 0.01 * (1 if ranking.TASKS[task].unit == "images/s" else 1e9)
    return Row(
        task, *place, "a size", amount, 1.0, ((0.01 / speed,) * values,), 1, "4 numbers as NumPy has them", **more
    )


def result(speed=1.0, only=None, processes=2, **changes):
    """Return a result with one row for each task, each of them so fast in so many processes."""
    rows = [row(task, speed) for task in ranking.TASKS if only is None or task in only]
    rows = [replace(one, runs=one.runs * processes) for one in rows]
    machine = Machine("Test CPU", 2.0, 8.0, "Linux", "x86_64", "3.11.7")
    whole = Result(with_ceilings(rows), STILL, machine, "preview", "2026-11-22", 30.0, {"tensorflow": "2.21.0"})
    return replace(whole, **changes)


# ------------------------------------------------------------------------------------------------------ the score


def test_the_reference_machine_scores_100():
    reference = ranking.reference()
    scored = ranking.score(reference)
    assert [scored.inference, scored.training, scored.overall] == pytest.approx([100] * 3)
    assert not scored.missing and scored.of_how_many == len(ranking.SCORED)


def test_a_score_takes_the_four_networks_and_nothing_that_differs_between_devices_or_minutes():
    assert ranking.SCORED == ("MLP training", "CNN training", "CNN inference", "CNN, one image")
    assert tasks.size_for("gpu", True) != tasks.size_for("cpu", True)
    usual, other = result(), result(rows=tuple(row(t, 1 if t in ranking.SCORED else 50) for t in ranking.TASKS))
    assert ranking.score(other, usual).overall == pytest.approx(100)


@settings(deadline=None)  # of a busy machine
@given(st.lists(st.floats(0.01, 100), min_size=len(ranking.SCORED), max_size=len(ranking.SCORED)))
def test_a_score_is_the_geometric_mean_of_the_ratios(ratios):
    mine = result(rows=tuple(row(task, 3 * ratio) for task, ratio in zip(ranking.SCORED, ratios, strict=True)))
    scored = ranking.score(mine, result(3.0))
    assert scored.overall == pytest.approx(100 * math.exp(np.mean(np.log(ratios))))
    training = [r for task, r in zip(ranking.SCORED, ratios, strict=True) if ranking.TASKS[task].group == "training"]
    assert scored.training == pytest.approx(100 * math.prod(training) ** (1 / len(training)))


@settings(deadline=None)  # of a busy machine
@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_which_machine_is_the_reference_changes_no_ratio(first, second):
    one, other = result(first), result(second)
    for reference in (result(1.0), result(7.0)):
        scores = [ranking.score(machine, reference).overall for machine in (one, other)]
        assert scores[0] / scores[1] == pytest.approx(first / second)


def test_the_best_device_of_a_task_counts_and_is_named():
    slow = row("CNN training", 50, place=("jax", "cpu:0", "Test CPU (JAX, CPU)", "Test CPU", "cpu"))
    fast = row("CNN training", 200)
    scored = ranking.score(result(rows=(slow, fast)), result(100.0))
    assert scored.tasks["CNN training"].row is fast and scored.training == pytest.approx(200)


def test_a_peak_is_a_ceiling_and_no_part_of_the_score():
    usual, boosted = result(), result(rows=tuple(row(t, 99 if t == tasks.PEAK else 1) for t in ranking.TASKS))
    assert ranking.score(boosted, usual).overall == pytest.approx(100)


def test_a_score_over_other_tasks_is_another_score():
    whole, part = ranking.score(result(), result()), ranking.score(result(only=("CNN training",)), result())
    assert part.of_how_many == whole.of_how_many == len(ranking.SCORED)
    assert set(part.missing) == set(ranking.SCORED) - {"CNN training"} and part.inference is None
    assert not part.whole("training") and not part.whole("overall")
    assert "may not be compared" in str(part) and "may not be compared" not in str(whole)
    assert "MLP training" in ranking.comparable(whole, part) and ranking.comparable(whole, whole) == ""
    common = tuple(part.tasks)
    assert ranking.comparable(part, ranking.score(result(), result(), common)) == ""


def test_results_of_different_tasks_or_of_noisy_machines_are_not_compared():
    usual = ranking.score(result(), result())
    assert "edition" in ranking.comparable(usual, ranking.score(result(edition=99), result()))
    noisy = ranking.score(result(noise=replace(STILL, others=1.9)), result())
    assert ranking.comparable(usual, noisy) == "theirs: too noisy"
    assert ranking.comparable(noisy, usual) == "yours: too noisy"
    assert ranking.comparable(noisy, noisy, ("a", "b")) == "a and b: too noisy"
    alone = ranking.score(result(processes=1), result())
    assert "yours: one process a task (preview)" in ranking.comparable(alone, usual)
    assert not noisy.reproducible and "Not reproducible" in str(noisy) and "Provisional" not in str(noisy)
    assert "too noisy" in ranking.score(result(), result(noise=replace(STILL, others=1.9))).provisional
    assert "of edition 1" in ranking.score(result(), result(edition=1)).provisional


def handing_over(*turns, hashed=0.01):
    """Return a quiet noise with a moment for each of these microseconds from core to core and back."""
    moments = [noise.Moment("a moment", (hashed,) * 9, (0.002,) * 9, (turn * 1e-6,) * 9) for turn in turns]
    return replace(STILL, moments=tuple(moments))


def test_one_kind_of_machine_in_two_states_is_not_compared():
    near, far = handing_over(0.18, 0.2, 0.18), handing_over(0.42, 0.4, 0.42)
    scores = {name: ranking.score(result(noise=seen), result()) for name, seen in (("near", near), ("far", far))}
    assert all(score.reproducible for score in scores.values())
    why = ranking.comparable(scores["near"], scores["far"], ("then", "now"))
    assert why.startswith("then and now are one kind of machine in two states: a number went from core to core")
    assert why.endswith("in 180 ns and 410 ns")
    assert ranking.comparable(scores["near"], scores["near"]) == ""
    another = replace(result().machine, processor="Another CPU")
    assert ranking.comparable(scores["near"], ranking.score(result(noise=far, machine=another), result())) == ""
    slower = ranking.score(result(noise=handing_over(0.18, 0.2, hashed=0.012)), result())
    assert ranking.comparable(scores["near"], slower).endswith("two states: the same hash took 10 ms and 12 ms")
    unknown = ranking.score(result(), result())  # not on Linux, or a file of before
    assert ranking.comparable(unknown, scores["far"]) == ranking.comparable(scores["far"], unknown) == ""


MEMORY_VARIED = replace(STILL, moments=(*STILL.moments, noise.Moment("late", (0.01,) * 9, (0.0028,) * 9)))


def test_memory_that_varies_is_told_and_spoils_rows_in_gb_but_no_score():
    mine = result(2.0, noise=MEMORY_VARIED)
    assert mine.noise.quiet and mine.noise.memory == "memory varied by 40%: rows in GB/s may not be compared"
    assert mine.noise.memory in str(mine) and mine.noise.memory in str(replace(mine.noise, others=1.9))
    scored = ranking.score(mine, result())
    assert scored.reproducible and ranking.comparable(scored, scored) == ""
    text = ranking.compare(result(name="a"), mine)
    assert "Left out, memory varied" in text and "OpenCL vector add" in text.splitlines()[-1]
    assert "memory" not in ranking.compare(result(name="a"), result(2.0)).splitlines()[-1]


def test_a_speed_is_the_third_quartile_of_the_processes_medians_and_tells_how_sure_it_is():
    two = replace(row("CNN training"), runs=((0.01, 0.01, 5.0), (0.02, 0.02, 0.02, 0.02)))
    assert two.speed == pytest.approx(0.875) and two.medians == pytest.approx((1.0, 0.5))
    # of two drawn from two, a quarter each are both fast (1) and both slow (0.5), and half are one of each (0.875)
    logs = np.log([1.0, 0.5, 0.875, 0.875])
    assert two.error == pytest.approx(np.std(logs), rel=0.1)
    assert row("CNN training").error is None and replace(two, runs=two.runs[:1] * 4).error == 0
    many = result(rows=tuple(replace(row(task), runs=two.runs * 2) for task in ranking.SCORED))
    scored = ranking.score(many, result())
    assert scored.differs == pytest.approx(2 * 2**0.5 * scored.tasks["CNN training"].row.error / 2)
    assert "A second run may differ by" in str(scored) and "unknown" in str(ranking.score(result(processes=1), many))


@given(st.integers(0, 4))
def test_how_many_processes_are_slow_moves_no_speed_as_long_as_half_are_fast(slow):
    fast = replace(row("CNN training"), runs=((0.01,) * 5,) * 8)
    mixed = replace(fast, runs=((0.014,) * 5,) * slow + fast.runs[slow:])
    assert mixed.speed == pytest.approx(fast.speed) and mixed.repeats == fast.repeats


# --------------------------------------------------------------------------------------------- it cannot be gamed


@given(st.floats(1, 1000))
def test_one_boosted_process_of_eight_changes_no_score(factor):
    usual = replace(row("CNN training"), runs=((0.01,) * 5,) * 8)
    boosted = replace(usual, runs=((0.01 / factor,) * 5, *usual.runs[1:]))
    assert boosted.speed == pytest.approx(usual.speed)


@given(st.floats(1, 1000))
def test_a_few_boosted_values_change_no_score(factor):
    usual = row("CNN training", values=20)
    slow = usual.runs[0][0]
    boosted = replace(usual, runs=((slow / factor,) * 4 + (slow,) * 16,))  # the clock is high for a fifth of the time
    assert boosted.speed == pytest.approx(usual.speed)


def test_a_clock_that_falls_is_told():
    falling = replace(row("CNN training"), runs=((1.0,) * 10 + (1.5,) * 10,))
    assert falling.drift == pytest.approx(1 / 1.5) and row("CNN training").drift is None
    slowly = result(rows=(replace(falling, runs=((1.0,) * 2 + (1.1,) * 16 + (1.2,) * 10,)),))
    assert "CNN training" in slowly.drifts()[0] and "Noise: quiet" in str(slowly)
    assert slowly.drifts()[0] in str(slowly)
    assert replace(slowly, noise=replace(STILL, others=1.0)).drifts()[0].startswith("1 row became")


def test_a_first_call_counts_nowhere():
    slow, fast = row("CNN training"), replace(row("CNN training"), first=1e-9)
    assert slow.values == fast.values
    assert [slow.first, fast.first] == [1.0, 1e-9]


@given(st.lists(st.floats(0.5, 2), min_size=3, max_size=30), st.randoms())
def test_the_order_of_the_values_changes_no_median(values, chance):
    mixed = list(values)
    chance.shuffle(mixed)
    assert replace(row("CNN training"), runs=(tuple(mixed),)).speed == pytest.approx(
        replace(row("CNN training"), runs=(tuple(values),)).speed
    )


class FakeClock:
    """A clock that moves when somebody works."""

    now = 0.0

    def __call__(self):
        return self.now


def timed(name, clock, order, seconds):
    """A work that takes so long for each call, and for the first one of a turn ten times as long."""

    def once():
        clock.now += seconds * (1 if order and order[-1] == name else 10)
        order.append(name)

    return Work("nothing", 1.0, once, tasks.no_wait, lambda: "right")


def test_works_are_timed_in_turn_and_the_first_call_of_a_turn_counts_nowhere():
    clock, order, told = FakeClock(), [], []
    there = {name: (timed(name, clock, order, 1.0), 2) for name in ("MLP training", "CNN training")}
    worker.take_turns(there, 1e9, told.append, clock)
    assert order[:8] == ["MLP training"] * 4 + ["CNN training"] * 4
    assert [one["task"] for one in told] == list(there) * worker.MOST_VALUES
    assert {one["seconds"] for one in told} == {1.0}


def test_a_slow_machine_gets_three_values_of_each_even_when_the_time_is_up():
    clock, told = FakeClock(), []
    there = {name: (timed(name, clock, [], 100.0), 1) for name in ("MLP training", "CNN training")}
    worker.take_turns(there, 1.0, told.append, clock)
    assert [one["task"] for one in told] == list(there) * 3


def test_nothing_to_time_ends_at_once():
    worker.take_turns({}, 1e9, print)


# ------------------------------------------------------------------------------------- no speed before a check


def test_a_work_whose_result_is_wrong_is_never_timed():
    def wrong():
        def check():
            return tasks.check_vector(np.zeros(4), np.ones(4))

        return Work("4 numbers", 4.0, lambda: None, tasks.no_wait, check)

    told = []
    assert worker.ready("memory copy", wrong, told.append) is None
    assert told == [{"task": "memory copy", "why_not": "wrong: 4 of 4 numbers differ"}]


def test_a_work_that_cannot_be_prepared_says_why():
    def broken():
        raise MemoryError("no room for 64 MiB\nand more")

    told = []
    assert worker.ready("memory copy", broken, told.append) is None
    assert told[0]["why_not"] == "MemoryError: no room for 64 MiB"


def test_a_short_work_is_done_several_times_for_one_value():
    told = []
    quick = Work("nothing", 1.0, lambda: None, tasks.no_wait, lambda: "right")
    _, loops = worker.ready("memory copy", lambda: quick, told.append)
    assert loops > 10 and told[0]["loops"] == loops and told[0]["checked"] == "right"


@pytest.mark.parametrize("spoil", [lambda c: c + 1, lambda c: c.T, lambda c: np.where(c == c[0, 0], np.nan, c)])
def test_a_wrong_product_is_refused(spoil):
    a, b = tasks.matrices(64)
    assert "64 x 64" in tasks.check_product(a @ b, 64)
    with pytest.raises(products.Refused, match="wrong"):
        tasks.check_product(spoil(a @ b), 64)
    with pytest.raises(products.Refused, match="shape"):
        tasks.check_product((a @ b)[:, :32], 64)


def test_the_factors_are_exact_in_every_short_format():
    import ml_dtypes

    for one in tasks.matrices(64):
        for short in (np.float16, ml_dtypes.bfloat16):
            assert np.array_equal(one.astype(short).astype(np.float32), one)


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_wrong_answers_of_a_network_are_refused(network):
    right = tasks.forward(network, tasks.images()[0][:4]).astype(np.float32)
    assert right.sum(1) == pytest.approx(np.ones(4))
    assert tasks.check_answers(network, right)
    with pytest.raises(products.Refused, match="wrong"):
        tasks.check_answers(network, right[:, ::-1])


def test_a_training_that_does_not_train_is_refused():
    few = slice(None, None, 4)
    expected = -np.log(tasks.forward("mlp", tasks.images()[0][few])[np.arange(32), tasks.images()[1][few]]).mean()
    assert "fell" in tasks.check_training("mlp", [expected, 2 * expected, *[0.9 * expected] * 3])
    for losses, why in (
        ([expected, 0.98 * expected, 0.95 * expected, 0.99 * expected], "did not fall"),  # dropout alone
        ([9 * expected, expected], "first loss"),
        ([expected, float("nan")], "not a number"),
    ):
        with pytest.raises(products.Refused, match=why):
            tasks.check_training("mlp", losses)


def test_the_operations_of_the_networks_are_those_of_their_layers():
    for network, counted in (("mlp", tasks.MLP_OPERATIONS), ("cnn", tasks.CNN_OPERATIONS)):
        outputs = {"mlp": (1, 1, 1), "cnn": (26 * 26, 24 * 24, 1, 1)}[network]
        layers = tasks.weights(network)
        assert counted == sum(2 * layer.kernel.size * n for layer, n in zip(layers, outputs, strict=True))
    parameters = {name: sum(one.size for layer in tasks.weights(name) for one in layer) for name in ("mlp", "cnn")}
    assert parameters == {"mlp": 669_706, "cnn": 1_199_882}  # the articles'


def test_the_onnx_file_answers_as_numpy_does():
    pytest.importorskip("onnxruntime")
    session = products.onnx_session(products.CPU_PROVIDER, networks.cnn_as_onnx())
    answers = session.run(None, {"pixels": tasks.images()[0]})[0]
    assert tasks.check_answers("cnn", answers)


def test_every_framework_does_what_it_is_said_to_do():
    assert set(worker.FRAMEWORKS) == set(worker.DOES) == set(measuring.SHARES)
    assert set(worker.FRAMEWORKS["numpy"]("cpu", "cpu")) == set(worker.DOES["numpy"])
    assert {task for does in worker.DOES.values() for task in does} == set(ranking.TASKS)


# ------------------------------------------------------------------------------------------------------- the noise


def test_a_quiet_machine_is_quiet():
    assert STILL.quiet and STILL.verdict == "quiet" and STILL.memory == "" and "within 0.0%" in str(STILL)


@given(st.floats(1.06, 50), st.integers(0, 2))
def test_one_slow_moment_makes_a_machine_noisy(factor, place):
    moments = list(STILL.moments)
    moments[place] = replace(moments[place], integer=tuple(factor * one for one in moments[place].integer))
    loud = replace(STILL, moments=tuple(moments))
    assert not loud.quiet and loud.ratio("integer") == pytest.approx(factor - 1)
    assert loud.verdict.startswith("too noisy: the same hash took ")


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"others": 0.5}, "other programs"), ({"steal": 0.1}, "host"), ({"moments": ()}, "not measured")],
)
def test_what_the_system_tells_makes_a_machine_noisy(changes, why):
    assert why in replace(STILL, **changes).verdict


@given(st.integers(1, 30), st.integers(0, 30), st.sampled_from([1.9, 2.2, 3.7, 10]))
def test_cores_far_from_each_other_at_more_than_a_third_of_the_moments_make_a_machine_noisy(fast, slow, factor):
    seen = handing_over(*([0.2] * fast + [0.2 * factor] * slow))
    assert seen.quiet == (2 * slow <= fast)
    if not seen.quiet:
        assert f"at {slow} of {slow + fast} moments its cores handed a number to each other" in seen.verdict
        assert f"{factor:.1f} times as slowly" in seen.verdict


def test_turns_of_one_state_and_unknown_ones_make_no_noise():
    assert (
        handing_over(0.15, 0.2, 0.22, 0.22, 0.22).quiet and STILL.hand_over is None and STILL.medians("hand_over") == []
    )
    some = replace(handing_over(0.2, 0.4), moments=(*STILL.moments, *handing_over(0.2, 0.4).moments))
    assert some.medians("hand_over") == pytest.approx([0.2e-6, 0.4e-6])
    table = some.table()
    assert table.headers[-1] == "core to core and back" and len(STILL.table().headers) == 3
    assert [line[-1] for line in table.rows] == ["", "", "", "200 ns", "400 ns"]


two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or round(noise.usable_cpus()) < 2, reason="needs Linux and two cores"
)


@two_cores
def test_two_cores_hand_a_number_over():
    turns = noise.measure_hand_over()
    assert len(turns) == handover.REPEATS and all(2e-8 < one < 1e-2 for one in turns)


def test_one_core_alone_hands_nothing_over(monkeypatch):
    monkeypatch.setattr(noise, "usable_cpus", lambda: 1.0)
    assert noise.measure_hand_over() == ()


@pytest.fixture
def changed_handover(monkeypatch, tmp_path):
    """Let the hand-over be measured by a copy of its script in which one text is replaced, and which ends after 1 s."""

    def change(old, new):
        text = Path(handover.__file__).read_text(encoding="utf-8")
        assert text.count(old) == text.count("LIMIT = 5") == 1
        copy = tmp_path / "handover.py"
        copy.write_text(text.replace(old, new).replace("LIMIT = 5", "LIMIT = 1"), encoding="utf-8")
        monkeypatch.setattr(handover, "__file__", str(copy))
        return copy

    return change


@two_cores
def test_where_no_process_may_be_pinned_the_hand_over_is_unknown_before_anybody_waits(changed_handover):
    copy = changed_handover("os.sched_setaffinity(0, {first})", "os.sched_setaffinity(0, {10**4})")  # is refused
    copy.write_text(copy.read_text(encoding="utf-8").replace("os.fork()", "exit('forked')"), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "OSError" in done.stderr  # and not SIGALRM
    assert noise.measure_hand_over() == ()


@two_cores
def test_a_partner_that_is_killed_leaves_the_hand_over_unknown_and_hangs_nothing(changed_handover):
    copy = changed_handover("if partner == 0:\n", "if partner == 0:\n        os.kill(os.getpid(), 9)\n")
    assert subprocess.run([sys.executable, "-I", "-S", str(copy)], check=False).returncode == -signal.SIGALRM
    assert noise.measure_hand_over() == ()


@two_cores
def test_a_partner_outlives_the_one_that_was_killed_by_a_second(changed_handover):
    copy = changed_handover("TURNS = 2000", "TURNS = 10**9")
    first = subprocess.Popen([sys.executable, "-I", "-S", str(copy)])
    while not (partners := psutil.Process(first.pid).children()):
        assert first.poll() is None
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert psutil.wait_procs(partners, timeout=30) == (partners, [])


def test_what_the_system_does_not_tell_makes_none():
    assert replace(STILL, others=None, steal=None).quiet


def test_a_watch_sees_its_own_work_as_its_own():
    watch = noise.Watch()
    for when in ("before", "between", "after"):
        watch.look(when)
    seen = watch.end()
    assert [moment.when for moment in seen.moments] == ["before", "between", "after"]
    assert all(len(getattr(moment, work)) == noise.REPEATS for moment in seen.moments for work in noise.WORKS)
    assert seen.others is None or seen.others >= 0
    assert [line[0] for line in seen.table().rows] == ["before", "between", "after"]
    assert seen.verdict == "quiet" or seen.verdict.startswith("too noisy")


# -------------------------------------------------------------------------------------------------------- the files


GALLERY = sorted(files.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_every_file_of_the_gallery_may_stand_there(path):
    assert files.NAMES.fullmatch(path.stem)
    assert files.problems_of(json.loads(path.read_text(encoding="utf-8"))) == []
    again = files.from_json(files.to_json(ranking.read(path)), path.stem)
    assert again.rows == ranking.read(path).rows
    assert str(again.table())


def test_the_reference_is_quiet_and_whole():
    assert files.problems_of_reference(ranking.reference()) == []


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_every_file_of_the_gallery_is_of_this_edition(path):
    assert ranking.read(path).edition == ranking.EDITION


def test_a_noisy_reference_and_one_with_a_failed_or_missing_work_are_refused():
    good = result()
    assert files.problems_of_reference(good) == []
    assert "too noisy" in files.problems_of_reference(replace(good, noise=replace(STILL, others=1.9)))[0]
    lost = replace(row("CNN training"), runs=(), why_not="wrong: the loss did not fall")
    another = replace(lost, framework="jax", identifier="cpu:0", why_not="it cannot compile")  # did nothing at all
    assert good.failures() == [] and replace(good, rows=(*good.rows, another)).failures() == []
    failed = files.problems_of_reference(replace(good, rows=(*good.rows, lost)))
    assert len(failed) == 1 and "the loss did not fall" in failed[0]
    crashed = [replace(another, task=task, why_not="its process was killed") for task in worker.DOES["jax"]]
    assert len(files.problems_of_reference(replace(good, rows=(*good.rows, *crashed)))) == len(worker.DOES["jax"])
    slowed = replace(good, machine=replace(good.machine, variables=("OPENBLAS_CORETYPE=Haswell",)))
    assert files.problems_of_reference(slowed) == ["OPENBLAS_CORETYPE=Haswell was set: it changes speeds"]
    part = tuple(one for one in good.rows if one.task != tasks.PEAK)
    assert files.problems_of_reference(replace(good, rows=part)) == [f"{tasks.PEAK}: measured on no device"]


def test_the_gallery_begins_with_the_reference_machine():
    assert ranking.gallery()[0].name == files.REFERENCE


def test_pyperf_reads_a_file_of_the_gallery():
    done = subprocess.run(
        [sys.executable, "-m", "pyperf", "show", str(GALLERY[0])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "CNN training" in done.stdout, done.stderr


def test_what_is_saved_is_what_is_read(tmp_path):
    lost = replace(row(tasks.MEMORY), framework="torch", what="", amount=0.0, first=0.0, runs=(), checked="",
                   why_not="OSError: /home/somebody/lib/x.so is gone")  # fmt: skip
    mine = result(rows=with_ceilings([*result().rows, lost]), noise=handing_over(0.2, 0.4, 0.2))
    path = ranking.save(mine, "a-machine", tmp_path)
    back = ranking.read(path)
    assert back.name == "a-machine" and back.machine == mine.machine and back.noise == mine.noise
    assert [one.speed for one in back.rows if not one.why_not] == pytest.approx(
        [one.speed for one in mine.rows if not one.why_not], rel=1e-5
    )
    assert [one.why_not for one in back.rows if one.why_not] == ["OSError: (a path) is gone"]
    assert back.rows[0].ceiling.name == mine.rows[0].ceiling.name


def test_a_file_without_hand_overs_is_read():
    held = files.to_json(result())
    for moment in held["workshop"]["noise"]["moments"]:
        del moment["hand_over"]
    assert files.problems_of(held) == [] and files.from_json(held).noise == STILL


def spoilt(change):
    held = json.loads(json.dumps(files.to_json(result())))
    change(held)
    return files.problems_of(held)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: f.pop("workshop"), "workshop"),
        (lambda f: f["workshop"].update(user="me"), "user"),
        (lambda f: f.setdefault("metadata", {}).update(hostname="my-laptop"), "hostname"),
        (lambda f: f["workshop"]["machine"].update(note="see /home/me/results"), "owner"),
        (lambda f: f["workshop"]["machine"].update(note=r"see C:\Users\me\results"), "owner"),
        (lambda f: f["workshop"].update(date="yesterday"), "yesterday"),
        (lambda f: f["workshop"].update(edition=99), "edition"),
        (lambda f: f["workshop"]["noise"].update(moments=[]), "moments"),
        (lambda f: f["benchmarks"][0]["runs"][0].update(values=[1.0]), "values"),
        (lambda f: f["benchmarks"][0]["runs"][0].update(values=[-1.0] * 3), "values"),
        (lambda f: f["benchmarks"][0]["runs"][0].update(values=[1e-12] * 3), "more than any machine"),
        (lambda f: f["benchmarks"][-1]["runs"][0].update(values=[1e-8] * 9, warmups=[[1, 1.0]]), "of what its arith"),
        (lambda f: [run.update(warmups=[[1, 1e-9]]) for run in f["benchmarks"][2]["runs"]], "first call"),
        (lambda f: f.update(score=1e6), "score"),
        (lambda f: f.update(benchmarks=[]), "benchmarks"),
    ],
)
def test_a_file_that_is_none_is_refused(change, problem):
    problems = spoilt(change)
    assert problems and problem in " ".join(problems)


def test_the_schema_knows_every_task_and_every_framework():
    known = json.loads(files.SCHEMA.read_text(encoding="utf-8"))["$defs"]
    assert known["task"]["enum"] == list(ranking.TASKS)
    assert set(known["framework"]["enum"]) == set(worker.FRAMEWORKS)


def test_a_right_file_has_no_problem():
    assert spoilt(lambda held: None) == []


@given(st.text())
def test_a_name_is_one_or_is_refused(name):
    if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        files.check_name(name)
    else:
        with pytest.raises(WorkshopError, match="cannot be the name"):
            files.check_name(name)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"benchmarks": 3}'])
def test_reading_what_is_no_result_is_told(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkshopError):
        ranking.read(path)
    with pytest.raises(WorkshopError, match="cannot be read"):
        ranking.read(tmp_path / "gone.json")


def test_nothing_measured_is_nothing_to_keep(tmp_path):
    lost = replace(row(tasks.MEMORY), runs=(), why_not="it hangs")
    with pytest.raises(WorkshopError, match="nothing to keep"):
        ranking.save(result(rows=(lost,)), "x", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("cannot open /home/me/.cache/x.so: gone", "cannot open (a path): gone"),
        (r"C:\Users\me\lib\x.dll failed", "(a path) failed"),
        ("device /CPU:0 of AMD/ATI", "device /CPU:0 of AMD/ATI"),
        ("12 GB/s at 3 images/s", "12 GB/s at 3 images/s"),
    ],
)
def test_paths_stay_at_home(said, kept):
    assert files.without_paths(said) == kept


# ------------------------------------------------------------------------------------------------------- ceilings


def test_a_ceiling_is_the_fastest_of_the_same_chip():
    gpu = ("opencl", "0:0", "GPU (OpenCL, GPU)", "Some GPU", "gpu")
    rows = with_ceilings(
        [row(tasks.PEAK, 100), row(tasks.PRODUCT, 50), row(tasks.PEAK, 9000, place=gpu), row(tasks.MEMORY, 20)]
    )
    assert [round(one.percent) for one in rows] == [100, 50, 100, 100]
    assert rows[1].ceiling.name == f"{tasks.PEAK} (TensorFlow)"


def test_without_a_peak_the_fastest_product_is_the_ceiling_and_without_that_there_is_none():
    rows = with_ceilings([row(tasks.PRODUCT, 50), row("CNN training", 10)])
    assert rows[0].percent == pytest.approx(100)
    assert rows[1].percent == pytest.approx(100 * 10 * tasks.OPERATIONS["CNN training"] / 50e9)
    assert with_ceilings([row("CNN training", 10)])[0].percent is None


# ------------------------------------------------------------------------------------------- processes that fail


@pytest.fixture
def only_numpy(monkeypatch):
    """A benchmark of NumPy alone, with works that a test may replace by a script."""

    def with_script(script, rounds=1, again=0):
        place = measuring.Place("numpy", "cpu", "Test CPU (NumPy, CPU)", "Test CPU", "cpu")
        monkeypatch.setattr(measuring, "find_places", lambda only: ([place], []))
        monkeypatch.setattr(measuring, "WORKER", ("-c", script))
        monkeypatch.setattr(noise, "REPEATS", 3)
        monkeypatch.setattr(noise, "HASHED", 1000)
        monkeypatch.setattr(noise, "COPIED", 1000)
        return ranking.measure(60.0 if again else 1.0, rounds=rounds, again=again, tell=lambda line: None)

    return with_script


SAID = 'print(\'{"task": "memory copy", "what": "w", "amount": 1e9, "first": 2.0, "loops": 1, "checked": "c"}\')\n'
VALUE = 'print(\'{"task": "memory copy", "seconds": 1.0}\', flush=True)\n'


def test_a_crash_costs_what_comes_after_it_and_nothing_before(only_numpy):
    copied, product = only_numpy(f"{SAID}{VALUE * 3}import os; os.abort()").rows
    assert copied.repeats == 3 and copied.speed == 1.0
    assert "SIGABRT" in product.why_not or "status" in product.why_not


def test_a_crash_before_the_third_value_leaves_no_row(only_numpy):
    copied, _ = only_numpy(f"{SAID}{VALUE * 2}import os; os._exit(3)").rows
    assert copied.repeats == 0 and "status 3" in copied.why_not


def test_a_process_that_failed_beside_one_that_did_not_is_told(only_numpy, tmp_path):
    seen = str(tmp_path / "seen")
    once = f"import os, pathlib; seen = pathlib.Path({seen!r})\nif seen.exists(): os._exit(3)\nseen.touch()\n"
    copied, _ = only_numpy(f"{once}{SAID}{VALUE * 3}", rounds=2).rows
    assert copied.repeats == 3 and copied.checked == "c; 1 of 2 processes failed"


def test_an_error_is_told_by_its_last_line(only_numpy):
    for one in only_numpy("raise SystemExit('no driver here')").rows:
        assert "status 1: no driver here" in one.why_not


def test_a_process_that_hangs_is_killed(only_numpy, monkeypatch):
    monkeypatch.setattr(measuring, "LEAST_PATIENCE", 0.5)
    monkeypatch.setattr(measuring, "PATIENCE", 0.5)
    rows = only_numpy(f"{SAID}{VALUE * 3}import time; time.sleep(600)").rows
    assert rows[0].repeats == 3 and "killed after" in rows[1].why_not


def test_nonsense_on_standard_output_is_left_out(only_numpy):
    copied, product = only_numpy(f"print('hello'); print('{{\"half'); print(3)\n{SAID}{VALUE * 3}").rows
    assert copied.repeats == 3 and product.why_not


def test_what_may_count_is_measured_again_and_nothing_else(only_numpy, monkeypatch):
    jax = ("jax", "cpu:0", "Test CPU (JAX, CPU)", "Test CPU", "cpu")
    rows = [row("CNN training", 10), row("CNN training", 8, place=jax), row("MLP training", 1, place=jax),
            row("MLP training", 5), row(tasks.MEMORY, 9, place=jax),
            replace(row("CNN inference", place=jax), runs=(), why_not="it hangs")]  # fmt: skip
    assert measuring.contenders(rows) == {
        ("tensorflow", "/CPU:0"): ("CNN training", "MLP training"), ("jax", "cpu:0"): ("CNN training",),
    }  # fmt: skip
    monkeypatch.setattr(measuring, "contenders", lambda rows: {("numpy", "cpu"): (tasks.MEMORY,)})
    copied, product = only_numpy(f"{SAID}{VALUE * 3}", again=2).rows
    assert len(copied.runs) == 3 and product.repeats == 0


def test_a_simulator_and_a_device_that_fails_are_not_timed():
    from helpers.compute.frameworks import Device

    good = Device("opencl", "0:0", "CPU", "cpu", computes="right")
    bad = replace(good, computes="failed: it cannot compile")
    assert measuring.Place.of(good).why_not == ""
    assert measuring.Place.of(bad).why_not == "it cannot compile"
    assert "simulator" in measuring.Place.of(replace(good, kind="simulator")).why_not


def test_one_gpu_has_one_name_and_two_keep_theirs():
    cpu = measuring.Place("numpy", "cpu", "CPU (NumPy, CPU)", "CPU", "cpu")
    gpus = [
        measuring.Place(framework, "0", name, name, "gpu")
        for framework, name in (("opencl", "AMD Radeon RX 6600 XT"), ("onnxruntime", "any GPU on Windows"))
    ]
    assert [one.chip for one in measuring.with_one_gpu([cpu, *gpus])] == ["CPU", *["AMD Radeon RX 6600 XT"] * 2]
    two = [*gpus, measuring.Place("opencl", "1", "another", "another", "gpu")]
    assert measuring.with_one_gpu(two) == two and measuring.with_one_gpu([cpu]) == [cpu]


def test_a_machine_is_described_by_what_may_be_public(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/home/me/dump")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    here = measuring.here([])
    assert "OPENBLAS_CORETYPE=Haswell" in here.variables and not any("/home" in one for one in here.variables)
    assert files.problems_of(files.to_json(result(machine=here))) == []


# ----------------------------------------------------------------------------------------------- command, figures


def test_a_file_is_checked_by_the_command(tmp_path, capsys):
    path = ranking.save(result(), "good", tmp_path)
    assert main(["bench", "--check", str(path)]) == 0
    assert "right in form" in capsys.readouterr().out
    held = json.loads(path.read_text(encoding="utf-8"))
    held["workshop"]["machine"]["note"] = "/home/me/x"
    path.write_text(json.dumps(held), encoding="utf-8")
    assert main(["bench", "--check", str(path)]) == 1
    assert "may not be sent in" in capsys.readouterr().out
    assert main(["bench", "--check", str(tmp_path / "gone")]) == 2


def test_a_wrong_name_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(ranking, "measure", lambda **_: pytest.fail("measured"))
    assert main(["bench", "--save", "Mein Rechner"]) == 2


def test_a_file_of_another_edition_is_refused_before_anything_is_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ranking, "measure", lambda **_: pytest.fail("measured"))
    old = ranking.save(result(edition=1), "old", tmp_path)
    assert main(["bench", "--compare", str(old)]) == 2
    assert "edition 1, and edition 2 is measured now" in capsys.readouterr().err
    assert main(["bench", "--check", str(old)]) == 1
    assert "edition 1: edition 2 is measured now" in capsys.readouterr().out


def test_the_command_measures_saves_and_compares(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    monkeypatch.setattr(ranking, "measure", lambda **_: result(2.0))
    monkeypatch.setattr(files, "reference", lambda: result())
    before = ranking.save(result(), "before", tmp_path)
    assert main(["bench", "--save", "now", "--note", "a test", "--compare", str(before)]) == 0
    out = capsys.readouterr().out
    assert "overall 200" in out and "faster" in out and "Then: Score: overall 100" in out
    assert "From then to this run: overall +100.0%, training +100.0%, inference +100.0%." in out
    assert ranking.read(tmp_path / "now.json").machine.note == "a test"


def test_a_comparison_of_nothing_in_common_is_told():
    with pytest.raises(WorkshopError, match="nothing in common"):
        ranking.compare(result(only=("CNN training",)), result(only=("MLP training",)))


def test_two_machines_are_compared_by_their_best_and_two_editions_not_at_all():
    other = ("tensorflow", "/GPU:0", "Some GPU (TensorFlow, GPU)", "Some GPU", "gpu")
    product = row(tasks.PRODUCT, 8.0, place=other)
    gpu = result(rows=(row("CNN training", 4.0, place=other), product), name="gpu")
    text = ranking.compare(result(name="cpu"), gpu)
    assert "4.00x faster" in text and "8.00x faster" in text and "cpu" in text and "Left out" not in text
    larger = replace(gpu, rows=(gpu.rows[0], replace(product, what="4,096 x 4,096, float32")))
    text = ranking.compare(result(name="cpu"), larger)
    assert "8.00x" not in text and f"Left out, matrices of other sizes or types: {tasks.PRODUCT}." in text
    with pytest.raises(WorkshopError, match="editions 2 and 3"):
        ranking.compare(result(), result(edition=3))


def test_the_figures_say_what_they_show(monkeypatch):
    said = []
    monkeypatch.setattr(figures, "show", lambda drawn, alt: said.append((drawn.savefig, alt)))
    monkeypatch.setattr(files, "reference", lambda: result())
    part = result(only=("CNN training",), name="part")
    ranking.draw_gallery(result(2.0), [result(name="reference"), part])
    ranking.draw_gallery(None, [result(name="reference")])
    ranking.draw_tasks(result())
    assert "yours: overall 200" in said[0][1] and "part, 1 of 4 tasks: no overall" in said[0][1]
    assert "yours" not in said[1][1] and "CNN training with TensorFlow" in said[2][1]


def test_a_row_and_a_table_are_for_people():
    lost = replace(row("CNN training"), runs=(), why_not="it hangs")
    text = str(result(rows=with_ceilings([row(tasks.PEAK, 100), lost])))
    assert "100 GFLOP/s" in text and "not measured, it hangs" in text and "Ceiling of Test CPU" in text
    assert str(row("CNN training", 12345.0)).startswith("CNN training, Test CPU (TensorFlow, CPU): 12,300 images/s")


def test_nothing_of_a_result_is_changed_by_scoring_it():
    mine = result()
    before = copy.deepcopy(mine)
    ranking.score(mine, result())
    assert mine == before


@pytest.fixture
def filled(monkeypatch, tmp_path):
    """Run fill_gallery over results that are handed in; return what it did."""
    gallery = tmp_path / "gallery"
    gallery.mkdir()
    started = []

    def fill(results):
        coming = iter(results)

        def run(command, **how):
            started.append((command[3:], how))
            save, into = (command[command.index(option) + 1] for option in ("--save", "--into"))
            one = next(coming)
            if one is not None:
                ranking.save(one, save, Path(into))
            return mock.Mock(returncode=int(one is None))

        monkeypatch.setattr(fill_gallery, "FOLDER", gallery)
        monkeypatch.setattr(fill_gallery, "usable_cpus", lambda: 2.0)
        monkeypatch.setattr(fill_gallery.subprocess, "run", run)
        monkeypatch.setattr(sys, "argv", ["fill_gallery", "some-cpu", "--note", "virtual machine"])
        return fill_gallery.main(), started, sorted(path.stem for path in gallery.iterdir())

    return fill


def test_the_gallery_is_filled_on_all_cores_and_on_one(filled, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    status, ((whole, free), (single, bound)), there = filled([result(), result()])
    assert status == 0 and there == ["some-cpu-1-core", "some-cpu-2-cores"]
    assert whole[:5] == ["bench", "--profile", "lab", "--save", "some-cpu-2-cores"]
    assert whole[-2:] == ["--note", "virtual machine"] and single[4] == "some-cpu-1-core"
    assert single[-2:] == ["--note", "virtual machine, one core of 2"]
    assert free["preexec_fn"] is None and callable(bound["preexec_fn"])
    assert "OPENBLAS_CORETYPE" not in free["env"]


def test_a_noisy_run_is_repeated_and_then_the_old_file_stays(filled, capsys):
    noisy = result(noise=replace(STILL, others=1.9))
    status, started, there = filled([noisy, result(), noisy, None])
    assert status == 1 and len(started) == 4 and there == ["some-cpu-2-cores"]
    out = capsys.readouterr().out
    assert "some-cpu-2-cores, try 1 of 2: the machine was too noisy" in out
    assert "some-cpu-1-core, try 2 of 2: bench ended with status 1" in out


@pytest.mark.parametrize("template", ["ISSUE_TEMPLATE/result.yml", "PULL_REQUEST_TEMPLATE/result.md"])
def test_the_templates_ask_for_the_check(template):
    text = (ROOT / ".github" / template).read_text(encoding="utf-8")
    assert "workshop.py bench --check data/results/machines/NAME.json" in text and "right in form" in text
    if template.endswith("yml"):
        import yaml

        ids = [part["id"] for part in yaml.safe_load(text)["body"] if "id" in part]
        assert {"name", "check", "file"} <= set(ids)


# ------------------------------------------------------------------------------------------------------- a real run


@pytest.fixture(scope="module")
def ran():
    """Measure NumPy and OpenCL on this machine for a moment."""
    return ranking.measure(3.0, only=("numpy", "opencl"), rounds=1, again=0, tell=lambda line: None)


@pytest.mark.slow
def test_a_real_run_measures_checks_and_can_be_kept(ran, tmp_path):
    measured = [one for one in ran.rows if not one.why_not]
    assert {one.task for one in measured} >= set(worker.DOES["numpy"])
    for one in measured:
        assert one.repeats >= 3 and one.speed > 0 and "NumPy" in one.checked and 0 < one.percent <= 130
    assert len(ran.noise.moments) >= 2
    path = ranking.save(ran, "here", tmp_path)
    assert [one.task for one in ranking.read(path).rows] == [one.task for one in ran.rows]


@pytest.mark.slow
@pytest.mark.parametrize("framework", [name for name in worker.FRAMEWORKS if name not in ("numpy", "opencl")])
def test_a_real_framework_does_all_that_it_is_said_to_do(framework):
    """Every work is right on some device here, or the row says why there is none."""
    found = ranking.measure(1.0, only=(framework,), rounds=1, again=0, tell=lambda line: None)
    done = {one.task for one in found.rows if not one.why_not}
    reasons = [one.why_not for one in found.rows if one.why_not]
    assert done == set(worker.DOES[framework]) or reasons
    assert not any("Error" in why for why in reasons), reasons
