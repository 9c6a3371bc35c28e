"""helpers.lessons.lesson_01b: what it says of a measurement must follow from the measurement."""

import dataclasses
import itertools
import time
import types

import numpy as np
import pytest

from helpers.judge import checks
from helpers.lessons import lesson_01b
from helpers.lessons import lesson_01b_exercises as exercises
from helpers.lessons import lesson_01b_limits as limits
from helpers.measure import records, timing
from helpers.measure.timing import Measurement

ROOFS = lesson_01b.Roofs(40.0, 100.0)
TWO = lesson_01b.write_chains(2).replace("chains", "two")


def run(seconds, spread=0.02, label="x"):
    return Measurement(label, "here", tuple(seconds * (1 + spread * i) for i in range(-6, 7)))


def printed(capsys):
    return " ".join(capsys.readouterr().out.split())


# ------------------------------------------------------------------------------------------------- the clock


@pytest.mark.parametrize(
    ("clock", "verdict"),
    [
        (lambda launch, queue, repeats: None, "not done yet: no run was timed"),
        (lambda launch, queue, repeats: launch().wait(), "not yet: expected a list of 4 times, came None. Is there a"),
        (lambda launch, queue, repeats: [launch().finish() for _ in range(4)], "not yet: expected 4 numbers"),
        (lambda launch, queue, repeats: [launch() and 0.08 for _ in range(4)], "not yet: your clock measures no"),
        (
            lambda launch, queue, repeats: [launch().profile.end],
            "not yet: `event.profile` holds the device's own times",
        ),
    ],
)
def test_a_clock_without_an_answer_is_told_what_is_missing(capsys, clock, verdict):
    lesson_01b.check_clock(clock)
    assert printed(capsys).startswith(verdict)


def test_the_check_gives_back_every_clock_and_takes_no_time(capsys):
    before = time.perf_counter, timing.time, time.sleep

    def clock(launch, queue, repeats):
        start = time.perf_counter()
        launch()
        time.sleep(1_000)
        raise ValueError(start)

    begin = time.perf_counter()
    lesson_01b.check_clock(clock)
    assert "ValueError" in printed(capsys)
    assert (time.perf_counter, timing.time, time.sleep) == before
    assert time.perf_counter() - begin < 100


# ------------------------------------------------------------------------------------------------- two chains


@pytest.mark.parametrize("loop", ["for k in range(steps) {", "for (k = 0; k < steps; k++) {"])
def test_a_loop_that_is_none_of_c_is_shown_one(loop):
    with pytest.raises(checks.NotYet, match="A loop in C, whose counter needs a type"):
        exercises.judge_two(TWO.replace("for (int k = 0; k < steps; k++) {", loop))
    with pytest.raises(checks.NotYet) as other:
        exercises.judge_two(TWO.replace("= v1;", "= v1"))
    assert "A loop in C" not in str(other.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("out[i + 1 * items] = v1;", "", "was never written"),
        ("v1 * v1", "v1 * v0", "element"),
        ("int i = get_global_id(0)", "int i = get_global_id(0) + 1", "work-item"),
        ("int i", "__local float far[9]; far[get_local_id(0)] = 0; int i", "lie in local memory"),
    ],
)
def test_a_wrong_kernel_of_two_chains_is_told_what_shows(old, new, message):
    assert old in TWO
    with pytest.raises(checks.NotYet, match=message):
        exercises.judge_two(TWO.replace(old, new))


HEAD = """__kernel void two(__global const float *x, __global float *out, const int steps) {
    int i = get_global_id(0), n = get_global_size(0);
"""
STEP = "v[j] = v[j] * v[j] + c[j];"


def test_one_chain_after_the_other_is_refused():
    loop = "v = 0; for (int k = 0; k < steps; k++) v = v * v + c; out[{0}] = v;"
    body = f"float v, c = x[i]; {loop.format('i')} c = x[i + n]; {loop.format('i + n')}"
    with pytest.raises(checks.NotYet, match="begins its second chain when the first one is done"):
        exercises.judge_two(f"{HEAD} {body} }}")


@pytest.mark.parametrize(
    "loops",
    [
        f"for (int j = 0; j < 2; j++) for (int k = 0; k < steps; k++) {STEP}",
        f"for (int j = 0; j < 2; j++) {{ int k = steps; while (k-- > 0) {STEP} }}",
        f"for (int k = 0; k < 2 * steps; k++) {{ int j = k % 2; {STEP} }}",
        f"int j = 0, k = 0; do {{ {STEP} j = !j; }} while (++k < 2 * steps);",
    ],
)
def test_chains_that_take_turns_are_refused(loops):
    body = f"float c[2] = {{x[i], x[i + n]}}, v[2] = {{0, 0}}; {loops} out[i] = v[0]; out[i + n] = v[1];"
    with pytest.raises(checks.NotYet, match="for 16 more steps, the loops of your kernel make 32 more rounds"):
        exercises.judge_two(f"{HEAD} {body} }}")


@pytest.mark.parametrize("round", ["steps - 1", "0"])
def test_a_second_chain_within_one_round_is_refused(round):
    body = f"float c[2] = {{x[i], x[i + n]}}, v[2] = {{0, 0}}; int j; for (int k = 0; k < steps; k++) {{ j = 0; {STEP}"
    alone = f"j = 1; if (k == {round}) {{ int m = steps; while (m-- > 0) {STEP} }} }}"
    with pytest.raises(checks.NotYet, match="a chain runs alone"):
        exercises.judge_two(f"{HEAD} {body} {alone} out[i] = v[0]; out[i + n] = v[1]; }}")


def test_a_loop_in_a_function_of_its_own_is_not_refused_for_its_rounds():
    chains = "float2 run(float2 c, int n) { float2 v = 0; while (n > 0) { v = v * v + c; n -= 1; } return v; }"
    body = "float2 v = run((float2)(x[i], x[i + n]), steps); out[i] = v.x; out[i + n] = v.y;"
    assert "5 launches" in exercises.judge_two(f"{chains} {HEAD} {body} }}")


def test_a_loop_over_both_chains_in_each_round_is_right_whatever_the_outer_loop():
    body = "float c[2] = {x[i], x[i + n]}, v[2] = {0, 0}; int k = 0;"
    loops = f"do {{ if (k >= steps) break; for (int j = 1; j >= 0; j--) {STEP} k++; }} while (1);"
    assert "5 launches" in exercises.judge_two(f"{HEAD} {body} {loops} out[i] = v[0]; out[i + n] = v[1]; }}")


def test_a_right_kernel_is_the_one_that_is_used_further_on(monkeypatch, capsys):
    monkeypatch.setattr(checks, "_right", {})
    lesson_01b.check_two(TWO.replace("v1 * v1", "v1 * v0"))
    assert checks.get_right("two", "none") == "none"
    lesson_01b.check_two(TWO)
    assert printed(capsys).count("right (5 launches") == 1 and checks.get_right("two", "none") == TWO


def test_chains_stand_beside_one_chain():
    found = {count: lesson_01b.Chains(run(1.0), 10.0 * count, 1e-9) for count in (1, 2, 4, 8)}
    assert lesson_01b.tabulate_chains(found).rows[3][1:5] == ("1 ns", "0.12 ns", "80 GFLOP/s", "8 times")


def test_more_than_full_overlap_allows_no_claim():
    found = {count: lesson_01b.Chains(run(1.0), speed, 1e-9) for count, speed in {1: 10, 2: 34, 8: 30}.items()}
    assert [row[4] for row in lesson_01b.tabulate_chains(found).rows] == ["no claim"] * 3


@pytest.mark.parametrize("count", [1, 2, 8])
def test_chains_side_by_side_compute_what_one_after_the_other_do(count):
    import pyopencl as cl

    from helpers.devices import opencl

    kernel = opencl.Kernel(lesson_01b.write_chains(count), "chains")
    x = np.linspace(-0.5, 0.2, 4 * count, dtype=np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    given, out = (cl.Buffer(kernel.context, flags, hostbuf=array) for array in (x, np.zeros_like(x)))
    kernel.kernel(kernel.queue, (4,), (2,), given, out, np.int32(5))
    actual = np.empty_like(x)
    cl.enqueue_copy(kernel.queue, actual, out)
    np.testing.assert_allclose(actual, exercises.compute_chain(x, 5), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------- curves


def curve(speeds):
    return lesson_01b.Curve("one group", {items: run(1.0) for items in speeds}, speeds, dict.fromkeys(speeds, 1))


def make_queue(units=2, most=8):
    device = types.SimpleNamespace(max_compute_units=units, max_work_group_size=most)
    return types.SimpleNamespace(device=device, finish=lambda: None)


class Unit:
    """A stand-in for a device of one unit that has lanes, and for the computer's clock."""

    def __init__(self, monkeypatch, lanes, launch=5e-5):
        self.now, self.lanes, self.launch_seconds = 0.0, lanes, launch
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(lesson_01b.opencl, "name", lambda device: "a device")
        monkeypatch.setattr(timing, "BUSY", 2.0)  # whatever else this computer does

    def launch(self, items, group, steps):
        self.now += self.launch_seconds + 1e-9 * steps * -(-items // self.lanes)


def test_enough_are_the_fewest_work_items_near_the_best():
    assert curve({1: 1.0, 2: 2.0, 4: 3.9, 8: 4.0, 16: 4.4, 32: 3.0}).enough == 4
    assert curve({1: 1.0, 2: 0.9}).enough == 1


@pytest.mark.parametrize("lanes", [1, 4])
def test_as_many_work_items_as_a_unit_has_lanes_are_enough(monkeypatch, capsys, lanes):
    unit = lesson_01b.measure_unit(Unit(monkeypatch, lanes).launch, make_queue())
    assert unit.enough == lanes and list(unit.runs) == [1, 2, 4, 8]
    assert unit.time_step(8) / unit.time_step(1) == pytest.approx(8 / lanes, rel=0.1)
    assert f"Enough for this unit: {lanes} work-item{'s' if lanes > 1 else ''}." in printed(capsys)


def test_every_launch_of_a_chain_takes_long_enough_to_hide_its_launch(monkeypatch):
    one = Unit(monkeypatch, 1)
    for items in (1, 64):
        steps = lesson_01b.find_steps(lambda steps, items=items: one.launch(items, items, steps), make_queue())
        assert 1e-3 <= 5e-5 + 1e-9 * steps * items < 2.1e-3


def test_a_device_whose_other_units_are_busy_gets_no_claim(monkeypatch, capsys):
    """A unit alone is what a busy computer leaves of two."""
    found = lesson_01b.measure_groups(Unit(monkeypatch, 4).launch, 4, make_queue())
    assert found.enough == 4 and found.claim == "no claim" and "quiet" in printed(capsys)
    assert lesson_01b.measure_groups(Unit(monkeypatch, 8).launch, 4, make_queue()).claim == "8 work-items"


def test_groups_are_added_as_long_as_they_gain(monkeypatch):
    found = lesson_01b.measure_groups(Unit(monkeypatch, 64).launch, 1, make_queue())
    assert list(found.runs)[-1] > 64 and found.claim == "64 work-items"


def test_the_curve_of_groups_is_noted(monkeypatch, tmp_path):
    monkeypatch.setenv(records.RECORD, str(tmp_path / "notes"))
    found = lesson_01b.measure_groups(Unit(monkeypatch, 4).launch, 4, make_queue())
    assert list(found.runs) == [4, 8, 16, 32, 64]
    noted = records.read_notes(tmp_path / "notes", "01b")
    assert noted[-1].label == "chain, 64 work-items, groups of 4" and noted[-1].unit == "GFLOP/s"
    assert found.speeds[64] == pytest.approx(noted[-1].value)


def test_a_recorded_curve_stands_beside_the_own(monkeypatch, tmp_path):
    machine = records.Machine("A GPU", "gpu", "1", "Linux", {})
    label = curve({}).name
    notes = [records.Note(label(n), 2.0 * n, "GFLOP/s", lesson="01b", date="2026-11-27") for n in (1, 2, 4)]
    records.write(tmp_path / "a.json", machine, notes)
    read, shown = records.read_all, []
    monkeypatch.setattr(records, "read_all", lambda: read(tmp_path))
    monkeypatch.setattr(lesson_01b, "show", lambda figure, alt: shown.append(alt))
    lesson_01b.draw_curves([curve({1: 1.0, 2: 2.0})] * 2, "mine")
    assert "Recorded on A GPU, one group: enough: 4, up to 8 GFLOP/s." in shown[0] and "enough: 2" in shown[0]


# ------------------------------------------------------------------------------------------------- the roof


def case(ratios, intensity=0.25, speed=9.0, spread=0.0):
    runs = {name: run(ratio, spread) for name, ratio in zip(limits.EXPERIMENTS, ratios, strict=True)}
    return limits.Case("a kernel", intensity, speed, {limits.BASE: run(1.0, 0.0), **runs})


@pytest.mark.parametrize("ratios", list(itertools.product((1.1, 2.0), repeat=3)))
@pytest.mark.parametrize("speed", [3.0, 9.0])
def test_a_limit_is_named_only_if_every_experiment_allows_it(ratios, speed):
    """What has room is never called the limit; nor is memory or arithmetic far below the roof."""
    items, each, operations = (ratio < 1.5 for ratio in ratios)
    name = case(ratios, speed=speed).describe_limit(ROOFS)
    assert (name == "launch") == (items and each and operations)
    if name in ("memory", "arithmetic"):
        assert speed == 9.0 and not (items or each) and (name == "memory") == operations
    assert name != "too few work-items" or (items and not operations)
    assert name != "too little in each" or (each and not items and not operations)
    row = limits.tabulate_limits([case(ratios, speed=speed)], ROOFS, curve({1: 1.0})).rows[0]
    assert row[-2] == ("90 %" if speed == 9.0 else "30 %") and row[-1].startswith(name)


@pytest.mark.parametrize(
    ("ratios", "spread", "bandwidth", "said"),
    [
        ((2.0, 2.0, 1.6), 0.02, 40.0, "no claim"),  # arithmetic or memory
        ((3.4, 2.0, 1.0), 0.0, 40.0, "no claim"),  # much longer than twice the work can take
        ((2.0, 2.0, 1.0), 0.0, 30.0, "no claim"),  # above its roof
        ((2.0, 2.0, 1.0), 0.0, 90.0, "cannot tell"),  # far below its roof
    ],
)
def test_a_limit_has_no_name_if_the_measurements_disagree(ratios, spread, bandwidth, said):
    assert case(ratios, spread=spread).describe_limit(lesson_01b.Roofs(bandwidth, 100.0)) == said


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("memory", "fewer bytes"), "if 'memory' were its limit, twice the number of work-items would take longer"),
        (("too few work-items", "fewer bytes"), "its limit is right, but 'fewer bytes'"),
        (("bandwidth", "fewer bytes"), "came 'bandwidth'; expected one of launch, too few work-items"),
        (("too little in each", "more in each"), "but so does 'too few work-items'"),
        (("too few work-items", "more in each"), "'more in each' is the change for 'too little in each'"),
        (("cannot tell", "another experiment"), "a limit of the table fits its numbers"),
        (("Too few  work-items", "more work-items"), ""),
    ],
)
def test_a_wrong_limit_is_told_which_experiment_contradicts_it(capsys, entry, message):
    names = "launch", "too little in each", "memory", "arithmetic"
    found = {letter: (name, exercises.REMEDIES[name]) for letter, name in zip("CEAD", names, strict=True)}
    exercises.check_limits({**found, "B": entry, "F": ("cannot tell", "another experiment")})
    said = printed(capsys)
    assert (message in said and said.startswith("not yet")) if message else said.startswith("right")


@pytest.mark.parametrize(
    ("others", "enough", "ratio", "gain", "limit"),
    [
        (0.1, "16 work-items", "1.7 times", "4 times", "memory"),
        (
            0.25,
            "at least 16 work-items",
            "at least 1.3 times",
            "at least 3.0 times",
            "memory",
        ),  # other programs explain 1.3 times
        (0.5, "at least 16 work-items", "at most 3.4 times", "at least 2.0 times", "no claim"),  # 2 times
        (0.8, "at least 8 work-items", "at most 8.4 times", "no claim", "no claim"),  # 5 times
        (0.97, "no claim", "no claim", "no claim", "no claim"),
        (1.0, "no claim", "no claim", "no claim", "no claim"),
    ],
)
def test_beside_other_programs_only_what_they_cannot_explain_is_claimed(
    monkeypatch, others, enough, ratio, gain, limit
):
    speeds = {1: 1.0, 8: 2.0, 16: 9.5, 32: 10.0}
    runs = {items: run(items / speed, 0.0) for items, speed in speeds.items()}
    busy = lesson_01b.Curve("one group", runs, speeds, dict.fromkeys(speeds, 1), others)
    assert (busy.claim, busy.compare_steps(16)) == (enough, ratio)
    found = {count: lesson_01b.Chains(run(1.0), 5.0 * count, 1e-9, others) for count in (1, 8)}
    found[8] = found[8]._replace(speed=20.0)
    assert [row[4] for row in lesson_01b.tabulate_chains(found).rows] == ["1 times", gain]
    each = dataclasses.replace(case((2.0, 2.0, 1.0)), others=others)
    table = limits.tabulate_limits([each], ROOFS, busy)
    assert table.rows[0][1:4] == ("2", "2", "1") and table.rows[0][-1].startswith(limit)
    assert any("processor" in line for line in table.below) == (others > timing.BUSY)
    assert each.describe_limit(ROOFS._replace(others=0.5)) == "no claim"


@pytest.mark.parametrize("share", [1.04, 1.4])
def test_a_speed_above_its_roof_shows_that_the_roof_is_too_low(share):
    table = limits.tabulate_limits([case((2.0, 2.0, 1.0), speed=10 * share)], ROOFS, curve({1: 1.0}))
    assert table.rows[0][-2] == f"{100 * share:.0f} %" and "the roof was measured too low" in table.below[0]
    assert table.rows[0][-1] == ("memory: fewer bytes" if share < 1.1 else "no claim")


def test_empty_lanes_are_named_where_no_limit_can_be(capsys):
    slow = lesson_01b.Curve("one group", {1: run(1.0), 16: run(16.0)}, {1: 1.0, 16: 1.0}, {1: 1, 16: 1})
    far = case((2.0, 2.0, 2.0), speed=3.0)
    assert "16 work-items took 16 times" in " ".join(limits.tabulate_limits([far], ROOFS, slow).below)
    assert not limits.tabulate_limits([case((2.0, 2.0, 1.0))], ROOFS, slow).below


def test_a_gpus_recorded_shares_are_below_the_table_of_limits():
    known = dataclasses.replace(case((2.0, 2.0, 1.0), intensity=1 / 12), label="add")
    below = " ".join(limits.tabulate_limits([known], ROOFS, curve({1: 1.0})).below)
    assert "recorded on NVIDIA H200, of its roof: add: 90 %." in below


def test_six_kernels_are_varied_and_drawn_below_the_roof(capsys, monkeypatch):
    import pyopencl as cl

    from helpers.devices import opencl

    shown, size = [], 2**14
    monkeypatch.setattr(limits, "show", lambda figure, alt: shown.append(alt))
    device = opencl.pick_device()
    context = cl.Context([device])
    values = np.full(size, 0.1, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=values) for _ in range(3)]
    cases = limits.measure_cases(cl.CommandQueue(context), buffers, size)
    assert [round(each.intensity, 3) for each in cases[:3]] == [0.083] * 3
    assert all(set(each.runs) == {limits.BASE, *limits.EXPERIMENTS} for each in cases)
    limits.draw_roofline(cases, ROOFS, "a device")
    assert "a device" in shown[0]
    assert all(f"{each.label}, recorded on a GPU: " in shown[0] for each in cases)
    assert "NVIDIA H200" in printed(capsys)
