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
from helpers.judge import checks, wgsl_checks, wgsl_recorder
from helpers.judge.trace import Trace
from helpers.judge.wgsl_recorder import GROUP, Case
from helpers.measure import records
from helpers.measure.tables import Table

if TYPE_CHECKING:
    import wgpu

SECONDS = 60.0  # for a whole verdict
MAX_TAKEN = 16  # numbers of others that one invocation adds to a sum in rounds; six in the solution


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

    Args:
        device: runs the kernels.
        prediction: the first sum without any barrier in the rounds; it is printed beside that sum.
        groups: workgroups, each with 64 ones to add.
    """
    rows, ones, first_sums = [], np.ones(groups * GROUP, np.float32), {}
    arrays = [ones, np.zeros(groups, np.float32), np.array([ones.size], np.uint32)]
    small = Case("n = 64", {0: ones[:64], 2: np.array([64], np.uint32)}, 1, np.full(1, 64, np.float32), 1)
    for label, left_out in LEFT_OUT.items():
        source = write_sums(left_out=left_out)
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
        "The unwritten elements held zeros in this run."
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


def judge_sums(source: str) -> str:
    """Judge the sums of workgroups; bindings: x, partial (one for each workgroup), uniform n: u32."""
    rng = np.random.default_rng()

    def make_case(n: int) -> Case:
        x = rng.uniform(0.5, 1.5, n).astype(np.float32)
        expected = np.add.reduceat(x.astype(float), range(0, n, GROUP)).astype(np.float32)
        arrays = {0: wgsl_checks.pad(x), 2: np.array([n], np.uint32)}
        return Case(f"n = {n}", arrays, 1, expected, expected.size)

    wanted = {0: "read-only-storage", 1: "storage", 2: "uniform"}
    sizes = (130, 64, 33, 5, 1, 65, 128, 1000, int(rng.integers(300, 3000)), 70_001)
    return wgsl_checks.judge_kernel(source, wanted, [make_case(n) for n in sizes], _expect_shared)


def _expect_shared(traced: Trace, case: Case) -> None:
    """Refuse sums of which one invocation made most alone."""
    near = [touch for touch in traced.touches if touch.array not in traced.lengths]
    writers, taken = collections.defaultdict(set), collections.defaultdict(set)
    for touch in near:
        if touch.writes:
            writers[touch.item // GROUP, touch.array, touch.index].add(touch.item)
    for touch in near:
        if touch.reads and writers[touch.item // GROUP, touch.array, touch.index] - {touch.item}:
            taken[touch.item].add((touch.array, touch.index))
    most = max(map(len, taken.values()), default=0)
    if case.expected.size > 1 and not 0 < most <= MAX_TAKEN:
        alone = f"one invocation takes {most} numbers of others" if most else "no invocation takes numbers of others"
        raise checks.NotYet(
            f"the sums are right, but {alone} from workgroup memory. Add in rounds: 32 invocations add at once, then "
            "16, 8, 4, 2 and 1."
        )


@checks.print_verdict
def check_products(source: str) -> Iterator[str]:
    """Lesson 14, exercise 1: the line that multiplies."""
    yield run_judge(judge_products, source)


@checks.print_verdict
def check_saxpy(source: str) -> Iterator[str]:
    """Lesson 14, exercise 2: saxpy with its guard."""
    yield run_judge(judge_saxpy, source)


@checks.print_verdict
def check_sums(source: str) -> Iterator[str]:
    """Lesson 14, exercise 3: the sum of each workgroup, in rounds."""
    yield run_judge(judge_sums, source)


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
