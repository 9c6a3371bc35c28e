"""Lesson 14, Compute on any GPU with WebGPU: the checks of its exercises, and races that right results hide."""

from __future__ import annotations

import collections
import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.devices import webgpu
from helpers.devices.kernel_text import without_comments
from helpers.judge import checks, wgsl_checks, wgsl_recorder
from helpers.judge.trace import Trace
from helpers.judge.wgsl_recorder import GROUP, Case
from helpers.measure import records
from helpers.measure.tables import Table

if TYPE_CHECKING:
    import wgpu

SECONDS = 60.0  # for a whole verdict
NARROW = 8  # invocations that run together where exercise 3's kernel is right


# ---------------------------------------------------------------------------------------------- what luck hides

# Exercise 3's kernel. `{copy}` fills `near`, and each of `{rounds}` is a statement, perhaps with a barrier after it.
SUMS = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
var<workgroup> near: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) me: u32,
        @builtin(workgroup_id) group: vec3<u32>) {{
    {copy}
    workgroupBarrier();
    {rounds}
    if (me == 0u) {{ partial[group.x] = near[me]; }}
}}
"""
COPY = "near[me] = select(0.0, x[id.x], id.x < n);"
COPY_WITHOUT_ZEROS = "if (id.x < n) { near[me] = x[id.x]; }"
STEPS = (32, 16, 8, 4, 2, 1)
LEFT_OUT = {  # the steps that have no barrier after them
    "all barriers": (),
    "none in the last three rounds": (4, 2, 1),
    "none in all six rounds": STEPS,
}
YOURS = "yours, from exercise 3"


def write_sums(copy: str = COPY, left_out: Sequence[int] = ()) -> str:
    """Return exercise 3's kernel in WGSL, with its rounds written out.

    Args:
        copy: the statement that fills `near`.
        left_out: the steps of the rounds that have no barrier after them.
    """
    rounds = []
    for step in STEPS:
        barrier = "" if step in left_out else " workgroupBarrier();"
        rounds.append(f"if (me < {step}u) {{ near[me] += near[me + {step}u]; }}{barrier}")
    return SUMS.format(copy=copy, rounds="\n    ".join(rounds))


def leave_out_barriers(device: wgpu.GPUDevice, prediction: object, groups: int = 1_000) -> Table:
    """Leave out barriers of exercise 3's kernel; return how many sums were right, and the record's first race.

    If the learner's kernel of exercise 3 is right, it has the last row.

    Args:
        device: runs the kernels.
        prediction: the first sum without any barrier in the rounds; it is printed beside that sum.
        groups: workgroups, each with 64 ones to add.
    """
    rows, arrays, first_sums = [], _make_ones(groups), {}
    small = Case("n = 64", {0: arrays[0][:64], 2: np.array([64], np.uint32)}, 1, np.full(1, 64, np.float32), 1)
    kernels = {label: write_sums(left_out=left_out) for label, left_out in LEFT_OUT.items()}
    kernels |= {YOURS: own} if (own := checks.get_right("narrow", "")) else {}
    for label, source in kernels.items():
        sums = webgpu.run(device, source, arrays, output=1, workgroups=groups)
        right, first_sums[label] = int((sums == GROUP).sum()), int(sums[0])
        records.add_note(records.Note(label, right, f"of {groups:,} right", lesson="14"))
        with contextlib.redirect_stdout(io.StringIO()):  # it names each launch
            races = wgsl_recorder.record(device, source, small, dry=False)[0].races()
        race = races[0].removeprefix("work-items ").partition(", one of")[0] if races else "none"
        rows.append((label, f"{right:,} of {groups:,} right", first_sums[label], race))
    measured = first_sums["none in all six rounds"]
    checks.compare_prediction(prediction, measured, "(the first sum of 64 ones)", most=GROUP)
    headers = ("barriers", "sums here", "the first sum", "race (invocations, element)")
    return records.add_column(Table(rows, headers), "14")


def _make_ones(groups: int) -> list[np.ndarray]:
    """Return the arrays with which exercise 3's kernel adds 64 ones in each workgroup."""
    ones = np.ones(groups * GROUP, np.float32)
    return [ones, np.zeros(groups, np.float32), np.array([ones.size], np.uint32)]


def add_without_zeros(device: wgpu.GPUDevice, prediction: object) -> Table:
    """Add 130 ones by a kernel that copies no 0; return the sums, also with `near` filled by zeros before.

    Args:
        device: runs the kernel.
        prediction: the three sums of the kernel; they are printed beside those that came.
    """
    source, n = write_sums(COPY_WITHOUT_ZEROS), 130
    arrays = [np.ones(n, np.float32), np.zeros(3, np.float32), np.array([n], np.uint32)]
    kernels = {
        "what the memory held before": source,
        "zeros, written before": wgsl_recorder.fill_workgroup_memory(source, 0),
    }
    sums = {name: webgpu.run(device, kernel, arrays, 1, 3) for name, kernel in kernels.items()}
    rows = [(name, ", ".join(f"{value:g}" for value in values)) for name, values in sums.items()]
    checks.compare_prediction(prediction, rows[0][1], "(the three sums)")
    held, zeros = sums.values()
    verdict = (
        "The unwritten elements held zeros in this run. That does not show that they always do."
        if (held == zeros).all()
        else (f"The unwritten elements held other numbers: the third sum is {held[2] - zeros[2]:g} too large.")
    )
    return Table(rows, ("where nothing was copied, `near` holds", "sums of 130 ones"), (verdict,))


# ---------------------------------------------------------------------------------------------- exercises


def judge_products(source: str) -> str:
    """Judge `c[i] = a[i] * b[i]` for one workgroup and buffers of 64, so without a guard; bindings: a, b, c."""
    a, b = np.random.default_rng().standard_normal((2, GROUP), dtype=np.float32)
    wanted = {0: "read-only-storage", 1: "read-only-storage", 2: "storage"}
    return wgsl_checks.judge_kernel(source, wanted, [Case(f"n = {GROUP}", {0: a, 1: b}, 2, a * b, 1, beyond=0)])


def judge_saxpy(source: str) -> str:
    """Judge `out[i] = alpha * x[i] + y[i]`; bindings: x, y, out, uniform {n: u32, alpha: f32}."""
    rng = np.random.default_rng()

    def make_case(n: int) -> Case:
        x, y = rng.standard_normal((2, n), dtype=np.float32)
        alpha = np.float32(rng.choice((-1, 1)) * rng.uniform(1.5, 3))
        values = np.array([n, alpha.view(np.uint32)], np.uint32)
        arrays = {0: wgsl_checks.pad(x), 1: wgsl_checks.pad(y), 3: values}
        return Case(f"n = {n}", arrays, 2, alpha * x + y, math.ceil(n / GROUP))

    wanted = {0: "read-only-storage", 1: "read-only-storage", 2: "storage", 3: "uniform"}
    sizes = (5, 130, 1, 63, 64, 65, 257, int(rng.integers(300, 3000)), 70_001)
    return wgsl_checks.judge_kernel(source, wanted, [make_case(n) for n in sizes])


def judge_narrow(source: str) -> str:
    """Judge the tree whose sum is right if at least NARROW invocations run together, and wrong if half as many do."""
    adapter = webgpu.pick_adapter()
    if adapter is None:
        raise checks.NotJudged(webgpu.explain_missing())
    device = webgpu.request_device(adapter)
    wgsl_checks.compile_kernel(device, source, {0: "read-only-storage", 1: "storage", 2: "uniform"})
    wgsl_checks.expect_uniform_barriers(source)
    if "storageBarrier" in without_comments(source):
        raise checks.NotYet("`storageBarrier` orders no workgroup memory: use `workgroupBarrier` alone.")
    every = []  # for each workgroup the steps that have a barrier after them
    for rounds in _follow_rounds(device, source):
        if rounds[0] == rounds[1]:
            raise checks.NotYet("the barrier after the copy is missing: step 32 would add what is not yet copied.")
        pairs = zip(STEPS, rounds[1:], rounds[2:], strict=False)
        every.append([step for step, before, after in pairs if before != after])
    right = int((webgpu.run(device, source, _make_ones(1_000), output=1, workgroups=1_000) == GROUP).sum())
    has_all = list(STEPS[:-1]) in every
    if has_all or right == 1_000:  # then no missing barrier shows, and a wrong sum has another cause
        _expect_sums_of_130(device, source)
    if has_all:
        raise checks.NotDone("each round has its barrier, so every width gives 64.")
    for kept in every:
        _judge_widths(kept)
    return f"with width 4, the computed sum is {play(4, every[0])}; here, {right:,} of 1,000 sums are {GROUP}"


def _expect_sums_of_130(device: wgpu.GPUDevice, source: str) -> None:
    """Refuse a kernel that adds 130 ones wrongly, 62 elements before the end of its third workgroup."""
    arrays = [wgsl_checks.pad(np.ones(130, np.float32)), np.zeros(3, np.float32), np.array([130], np.uint32)]
    sums = webgpu.run(device, source, arrays, output=1, workgroups=3)
    if sums.tolist() != [64, 64, 2]:
        raise checks.NotYet(
            f"more than the barriers differs from the kernel that you were given: the three sums of 130 ones are "
            f"{', '.join(f'{value:g}' for value in sums)}, not 64, 64, 2."
        )


def _judge_widths(kept: Sequence[int]) -> None:
    """Refuse barriers with which some width of at least NARROW gives a wrong sum, or half of NARROW a right one."""
    for width in (GROUP, GROUP // 2, GROUP // 4, NARROW):
        if (total := play(width, kept)) != GROUP:
            raise checks.NotYet(f"with width {width}, the sum is {total}, not {GROUP}: a barrier is missing.")
    if play(NARROW // 2, kept) == GROUP:
        raise checks.NotYet(f"with width {NARROW // 2}, the sum is {GROUP}, too: width {NARROW} needs fewer barriers.")


def play(width: int, barriers: Sequence[int]) -> int:
    """Return the sum of 64 ones, if `width` invocations run together up to the next barrier; lesson 14 builds it.

    Args:
        width: how many; the first ones begin.
        barriers: the steps that have a barrier after them.
    """
    near, waiting = np.ones(GROUP, int), list[int]()
    for step in STEPS:
        waiting.append(step)
        if step in barriers or step == 1:
            for first in range(0, GROUP, width):
                for each in waiting:
                    me = np.arange(first, first + width)
                    me = me[me < each]
                    near[me] += near[me + each]
            waiting = []
    return int(near[0])


def _follow_rounds(device: wgpu.GPUDevice, source: str) -> list[list[int]]:
    """Return for the first invocation of each workgroup how many barriers it met before each of its writes to `near`.

    Raises:
        NotYet: the kernel touches other elements than exercise 3's kernel, or not all reach its barriers.
        NotJudged: the recorder does not follow it.
    """
    n = 130
    arrays = {0: wgsl_checks.pad(np.ones(n, np.float32)), 2: np.array([n], np.uint32)}
    case = Case(f"n = {n}", arrays, 1, np.array([64, 64, 2], np.float32), 3)
    given = _list_writes(wgsl_recorder.record(device, write_sums(), case, dry=False)[0])
    try:
        wgsl_recorder.record(device, source, case, dry=True)
        writes = _list_writes(wgsl_recorder.record(device, source, case, dry=False)[0])
    except wgsl_recorder.NotFollowed as why:
        raise checks.NotJudged(f"the check does not follow this kernel: {why}. Change its barriers alone.") from None
    without_barriers, expected = (
        {item: [write[:2] for write in each] for item, each in every.items()} for every in (writes, given)
    )
    if without_barriers != expected:
        raise checks.NotYet(
            "more than the barriers differs from the kernel that you were given: an invocation reads or writes another "
            "element, or in another order."
        )
    firsts = range(0, GROUP * case.groups, GROUP)
    return [[rounds for written, _, rounds in writes[first] if written[0] == "near"] for first in firsts]


def _list_writes(traced: Trace) -> dict[int, list[tuple]]:
    """Return each invocation's writes: the element, what is read for it, and the barriers that were met before.

    What is read is an array, an index, and how many more barriers were met before reading.
    """
    writes = collections.defaultdict(list)
    for touch in traced.touches:
        element, mine = (touch.array, touch.index), writes[touch.item]
        if touch.writes:
            mine.append((element, {(*element, 0)} if touch.reads else set(), touch.rounds))
        elif mine:
            mine[-1][1].add((*element, touch.rounds - mine[-1][2]))
    return writes


@checks.print_verdict
def check_products(source: str) -> Iterator[str]:
    """Lesson 14, exercise 1: the line that multiplies."""
    yield run_judge(judge_products, source)


@checks.print_verdict
def check_saxpy(source: str) -> Iterator[str]:
    """Lesson 14, exercise 2: saxpy with its guard."""
    yield run_judge(judge_saxpy, source)


@checks.print_verdict
def check_narrow(source: str) -> Iterator[str]:
    """Lesson 14, exercise 3: the sum of each workgroup, right on one adapter and wrong on another."""
    yield checks.keep_right("narrow", source, run_judge(judge_narrow, source))


def run_judge(judge: checks.Judge, source: object) -> str:
    """Let a judge run in a subprocess.

    Args:
        judge: takes the source.
        source: the learner's WGSL.

    Returns:
        What the judge tried.

    Raises:
        NotJudged: there is no adapter.
        NotDone, NotYet: as the judge found.
    """
    if webgpu.pick_adapter() is None:
        raise checks.NotJudged(webgpu.explain_missing())
    if isinstance(source, str) and not source.strip():
        raise checks.NotDone("there is no kernel yet.")
    return checks.judge_in_subprocess(judge, SECONDS, is_optimized=False, source=source)
