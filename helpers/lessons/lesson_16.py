"""Lesson 16, See attention: its kernels and their checks; `lesson_16_reader` draws where its network looks."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from helpers.devices import opencl
from helpers.judge import checks, kernel_checks, opencl_header
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.lessons.lesson_16_faults import (
    CLOSE,
    FAULTS,
    ROW_FAULTS,
    Shown,
    compute_attention,
    compute_softmax,
    list_rows,
    refuse_wrong,
)
from helpers.measure.plots import BLUE, ORANGE, figure, show

ONE_PASS = """
__kernel void one_pass(__global const float *x, __global float *out, int n) {
    int row = get_global_id(0);
    float largest = -INFINITY, sum = 0;
    for (int j = 0; j < n; j++) {
        float score = x[row * n + j];
        float next = fmax(largest, score);
        sum = sum * exp(largest - next) + exp(score - next);
        largest = next;
    }
    out[2 * row] = largest;
    out[2 * row + 1] = sum;
}
"""
ATTENTION = """
#define D 16
__kernel void attention(__global const float *q, __global const float *k, __global const float *v,
                        __global float *out, int n, int causal) {
    int i = get_global_id(0), head = n * get_global_id(1);
    float query[D], answer[D], largest = -INFINITY, sum = 0;
    for (int c = 0; c < D; c++) {
        query[c] = q[(head + i) * D + c];
        answer[c] = 0;
    }
    for (int j = 0; j < n; j++) {
        if (causal && j > i) break;
        float score = 0;
        for (int c = 0; c < D; c++) score += query[c] * k[(head + j) * D + c];
        score /= sqrt((float)D);
        float next = fmax(largest, score), old = exp(largest - next), weight = exp(score - next);
        sum = sum * old + weight;
        for (int c = 0; c < D; c++) answer[c] = answer[c] * old + weight * v[(head + j) * D + c];
        largest = next;
    }
    for (int c = 0; c < D; c++) out[(head + i) * D + c] = answer[c] / sum;
}
"""
DEPTH = re.compile(r"#define[ \t]+D[ \t]+(\d+)")
TRACED = (2, 5, 4)  # heads, n and d of the launch whose accesses are counted: 128 of a work-item are listed
LONG = 20_000  # keys for a few queries
MOST_KEPT = 32  # numbers in an array of a work-item's own, if D is 4: more look like a row of scores


def set_depth(source: str, depth: int) -> str:
    """Return a kernel with another D; unchanged if it has no line `#define D` with a number."""
    return DEPTH.sub(f"#define D {depth}", source, count=1)


# ---------------------------------------------------------------------------------------------- its checks


@checks.print_verdict
def check_softmax(learner: Callable[[np.ndarray], np.ndarray]) -> Iterator[str]:
    """Exercise 1: softmax that stays finite whatever the scores are."""
    quiet = np.errstate(all="ignore")(learner)
    answer = checks.answer(quiet, np.array([100, 99], np.float32), who="softmax([100, 99])")
    if isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and np.isnan(answer).all():
        raise NotDone("softmax([100, 99]) is still nan.")
    tried = checks.judge_function(quiet, lambda scores: compute_softmax(scores).astype(np.float32), _list_scores)
    yield checks.keep_right("softmax", quiet, tried)


def _list_scores(rng: np.random.Generator) -> Iterator[tuple[np.ndarray]]:
    """Yield rows of scores whose differences are exact in float32."""
    for row in ([100, 99], [-200, -201, -203], [0], [3e4, 0, -3e4], [7, 7, 7], [-100, 0, 60], [90] * 9 + [89]):
        yield (np.array(row, np.float32),)
    yield (rng.integers(-40, 40, 100).astype(np.float32) / 4,)


@checks.print_verdict
def check_one_pass(source: str) -> Iterator[str]:
    """Exercise 2: the largest and the sum of a row of scores, in one pass."""
    yield checks.keep_right("one_pass", source, checks.judge_in_subprocess(judge_one_pass, source=source))


def judge_one_pass(source: str) -> str:
    """Judge the kernel of exercise 2; called in a subprocess."""
    kernel = kernel_checks.build(source, "one_pass")
    x, *_ = kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "int"))
    rows, n = 4, 9
    given = [np.linspace(-3, 3, rows * n).astype(np.float32), np.zeros(2 * rows, np.float32), np.int32(n)]
    launch = kernel_checks.describe_launch({"n": n}, [rows], [1])
    traced = kernel_checks.record(kernel, launch, rows, 1, given)
    _refuse_accesses(traced, launch, kernel)
    _refuse_rows(kernel.source)
    shown = []
    for name, row in list_rows().items():
        scores = np.stack([row, row[::-1], row - 1])
        given_rows = {x: scores.reshape(-1)}
        first, second = (
            kernel_checks.run_guarded(kernel, given_rows, {"n": len(row)}, 6, 3, 1, fill)
            for fill in kernel_checks.FILLS
        )
        largest = scores.max(1).astype(float)
        sums = np.exp(scores.astype(float) - largest[:, None]).sum(1)
        expected = np.stack([largest, sums], 1)
        shown.append(Shown(name, scores, np.ones((len(row), 1), np.float32), False, (first, second), expected))
    refuse_wrong(
        shown,
        ROW_FAULTS,
        lambda pass_: np.stack(pass_[:2], -1),
        lambda at: f"row {at[0]}, the {('largest', 'sum')[at[1]]}",
    )
    for name, count in _count_reads(traced).items():
        if count > n + 1:  # one more: the first score may begin the largest, too
            raise NotYet(
                f"the numbers are right, but a work-item reads {count} numbers of {name} for a row of {n}; expected "
                f"one pass, which reads each score once."
            )
    return f"{len(shown)} kinds of rows, in one pass, on {opencl.name(kernel.device)}"


def _refuse_accesses(traced: Trace, launch: str, kernel: opencl.Kernel) -> None:
    """Refuse a recorded launch that writes nothing, reaches outside, races, or reads what it writes."""
    kernel_checks.expect_writes(traced, launch, kernel)
    kernel_checks.refuse_faults(traced, launch)
    output = kernel.parameters[-3 if len(kernel.parameters) > 3 else -2].name
    if any(touch.array == output and touch.reads for touch in traced.touches):
        raise NotYet(f"{launch}: the kernel reads {output}. Keep what is not ready yet in variables of the work-item.")
    own_numbers = traced.lengths[output] // len(traced.global_ids)
    kernel_checks.refuse_overwork(traced, launch, own_numbers)
    most = max(collections.Counter(t.item for t in traced.touches if t.array == output).values(), default=0)
    if most > own_numbers:
        raise NotYet(f"{launch}: a work-item writes {most} times to {output}. Write each number once, at the end.")


def _refuse_rows(source: str) -> None:
    """Refuse a kernel with an array of a work-item's own, or of a group, that could keep a row of scores."""
    for cursor in opencl_header.parse(source).cursor.walk_preorder():
        if cursor.kind.name == "VAR_DECL" and cursor.type.kind.name == "CONSTANTARRAY":
            count = cursor.type.get_size() // 4
            if count > MOST_KEPT:
                raise NotYet(
                    f"`{cursor.spelling}` has room for {count:,} numbers, and a row may be longer. Keep the running "
                    "values alone."
                )


def _count_reads(traced: Trace) -> dict[str, int]:
    """Return for each array how many numbers of it the busiest work-item reads."""
    counted = collections.Counter((t.array, t.item) for t in traced.touches if t.reads and t.array in traced.lengths)
    return {array: max(n for (name, _), n in counted.items() if name == array) for array, _ in counted}


@checks.print_verdict
def check_attention(source: str) -> Iterator[str]:
    """Exercise 3: attention without a row of scores in memory, causal or not."""
    yield checks.keep_right("attention", source, checks.judge_in_subprocess(judge_attention, source=source))


def judge_attention(source: str) -> str:
    """Judge the kernel of exercise 3, with D = 16 and with D = 4, which is recorded, too; called in a subprocess."""
    kernel = kernel_checks.build(source, "attention")
    if not DEPTH.search(source):
        raise NotYet("expected the line `#define D 16` at the top, as it was at first: the check tries another D, too.")
    kernel_checks.expect_parameters(kernel, ["float[]"] * 4 + ["int"] * 2)
    heads, n, d = TRACED
    launch = kernel_checks.describe_launch({"D": d, "n": n, "causal": 0}, (n, heads), (1, 1))
    small = kernel_checks.build(set_depth(source, d), "attention")
    traced = kernel_checks.record(small, launch, (n, heads), (1, 1), _make_arguments(heads, n, d))
    _refuse_accesses(traced, launch, small)
    _refuse_rows(small.source)
    rows = list_rows()
    shown = [each for name, row in rows.items() for each in _run_rows(kernel, name, row, 16)]
    shown += _run_rows(small, "random scores", rows["random scores"], d)
    refuse_wrong(
        shown, FAULTS, lambda pass_: pass_[2], lambda at: f"head {at[0]}, query {at[1]}, number {at[2]} of its answer"
    )
    for name, count in _count_reads(traced).items():
        most = d if name == kernel.parameters[0].name else n * d
        if count > most:
            raise NotYet(
                f"the answers are right, but with {launch} a work-item reads {count} numbers of {name}; {most} are "
                "enough. Read each number once, and keep the query and the answer in the work-item's own arrays."
            )
    _judge_long(kernel)
    return f"{len(shown)} launches, causal or not, each key and value read once, on {opencl.name(kernel.device)}"


def _make_arguments(heads: int, n: int, d: int) -> list[np.ndarray | np.generic]:
    """Return the arguments of a recorded launch: its numbers do not matter."""
    return [*np.ones((3, heads * n * d), np.float32), np.zeros(heads * n * d, np.float32), np.int32(n), np.int32(0)]


def _run_rows(kernel: opencl.Kernel, name: str, row: np.ndarray, d: int) -> Iterator[Shown]:
    """Yield what attention with these scores showed: in head 0 each query has them, in head 1 they are random."""
    rng, n = np.random.default_rng(), len(row)
    q, k, v = rng.normal(size=(3, 2, n, d)).astype(np.float32)
    q[0], k[0] = np.eye(d)[0], np.outer(row * np.sqrt(d), np.eye(d)[0])
    for causal in (False, True):
        scores = q @ k.swapaxes(1, 2)
        first, second = (_run(kernel, (q, k, v), causal, n, fill) for fill in kernel_checks.FILLS)
        where = f"{name}, D = {d}, n = {n}, causal = {int(causal)}"
        yield Shown(where, scores, v, causal, (first, second), compute_attention(q, k, v, causal))


def _run(
    kernel: opencl.Kernel, given: Sequence[np.ndarray], causal: bool, queries: int, fill: int = kernel_checks.FILLS[0]
) -> np.ndarray:
    """Run attention between canaries for the first queries of each head; return the bits of the answers."""
    heads, n, d = given[1].shape
    arrays = {p.name: array.reshape(-1) for p, array in zip(kernel.parameters, given, strict=False)}
    length = heads * queries * d
    return kernel_checks.run_guarded(
        kernel, arrays, {"n": n, "causal": int(causal)}, length, (queries, heads), (1, 1), fill
    )


def _judge_long(kernel: opencl.Kernel) -> None:
    """Refuse a kernel that a long row, with fewer work-items than keys, shows to be wrong."""
    q, k, v = np.random.default_rng().normal(size=(3, 1, LONG, 16)).astype(np.float32)
    actual = _run(kernel, (q, k, v), False, 4).view(np.float32)
    if not np.allclose(actual, compute_attention(q[:, :4], k, v).reshape(-1), CLOSE, CLOSE):
        why = "Does the kernel take its number of work-items for n?"
        raise NotYet(f"n = {LONG:,}, four queries: the answers are wrong. {why}")


@checks.print_verdict
def check_erase(learner: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Iterator[str]:
    """Exercise 4: images without the piece with ink that has the largest number."""
    pieces = np.linspace(0.1, 1, 49 * 16, dtype=np.float32).reshape(1, 49, 16)
    maps = np.linspace(0.1, 0, 49)[None]
    answer = checks.answer(learner, pieces.copy(), maps, who="erase(pieces, maps)")
    if answer is None:
        raise NotDone(f"erase(pieces, maps) returned None. ({checks.RETURNS})")
    if isinstance(answer, np.ndarray) and np.array_equal(answer, pieces):
        raise NotDone("erase still returns the pieces unchanged.")
    yield checks.keep_right("erase", learner, _judge_images(learner))


def _judge_images(learner: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> str:
    """Judge exercise 4 on images that change with every call; return what was tried."""
    count = 0
    for pieces, maps in _list_images(np.random.default_rng()):
        given = pieces.copy(), maps.copy()
        actual = checks.answer(learner, *given, who="erase(pieces, maps)")
        if not isinstance(actual, np.ndarray) or actual.shape != pieces.shape or actual.dtype.kind not in "fiub":
            raise NotYet(f"erase(pieces, maps) returned {checks.short(actual)}; expected numbers as in `pieces`.")
        if not (np.array_equal(given[0], pieces) and np.array_equal(given[1], maps)):
            raise NotYet("erase changes its own argument; work on a copy.")
        for image, (before, after, numbers) in enumerate(zip(pieces, actual, maps, strict=True)):
            inked = np.where(before.any(axis=1), numbers, -1)
            largest = np.flatnonzero(inked == inked.max()).tolist()
            if not any(np.allclose(after, _erase_piece(before, place), 1e-3, 1e-3) for place in largest):
                changed = np.flatnonzero((after != before).any(axis=1)).tolist()
                came = f"these pieces change: {checks.short(changed)}" if changed else "no piece changes"
                raise NotYet(
                    f"image {image} of {len(pieces)}: {came}. Expected piece {' or '.join(map(str, largest))} alone, "
                    "with all its pixels 0: of the pieces with ink, its number is the largest."
                )
        count += len(pieces)
    return f"{count} images"


def _erase_piece(image: np.ndarray, place: int) -> np.ndarray:
    """Return an image of shape (49, 16) without the ink of one piece."""
    left = image.copy()
    left[place] = 0
    return left


def _list_images(rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield images in pieces, of shape (m, 49, 16), half of them blank, and a number for each piece."""
    for m in (1, 5, 20):
        has_ink = rng.random((m, 49, 1)) < 0.5
        has_ink[:, 0], has_ink[:, 1:3] = False, True
        maps = rng.random((m, 49)) / 49
        maps[:, 0] += 1  # the largest number belongs to a blank piece
        if m > 1:
            maps[0, 1:3] = 0.5  # two pieces have the largest number with ink
            has_ink[1, 2:], maps[1, 1] = False, 0  # the one piece with ink has the number 0
        pieces = (has_ink * (rng.random((m, 49, 16)) < 0.2) * rng.random((m, 49, 16))).astype(np.float32)
        pieces[:, 1:3, 0] += 0.5 * has_ink[:, 1:3, 0]  # so that they have ink
        yield pieces, maps


def erase(pieces: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Return images without the piece with ink that has the largest number: its pixels become 0.

    Args:
        pieces: of shape (m, n, pixels); each image has ink.
        maps: a number from 0 for each piece, of shape (m, n).
    """
    left = pieces.copy()
    most = np.where(pieces.any(axis=2), maps, -1).argmax(axis=1)
    left[np.arange(len(left)), most] = 0
    return left


# ---------------------------------------------------------------------------------------------- drawn


def draw_pass(source: str, row: Sequence[float]) -> None:
    """Draw the largest and the sum so far along a row of scores, as the kernel of exercise 2 computes them.

    Args:
        source: of the kernel `one_pass`.
        row: scores.
    """
    import pyopencl as cl

    kernel, scores = opencl.Kernel(source, "one_pass"), np.asarray(row, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    x, out = (cl.Buffer(kernel.context, flags, hostbuf=array) for array in (scores, np.zeros(2, np.float32)))
    found = np.zeros((len(scores), 2), np.float32)
    for count, pair in enumerate(found, 1):  # the row's beginning is a row, too
        kernel.kernel(kernel.queue, (1,), None, x, out, np.int32(count))
        cl.enqueue_copy(kernel.queue, pair, out)
    places = np.arange(len(scores))
    title = "When the largest grows, the sum so far is rescaled"
    with figure(7.5, 4.2, title, nrows=2, sharex=True) as (drawn, (top, bottom)):
        top.plot(places, scores, "o", color=BLUE, label="score")
        top.step(places, found[:, 0], where="post", color=ORANGE, label="largest so far")
        top.set(ylabel="score")
        top.legend(loc="lower right")
        bottom.bar(places, found[:, 1], color=BLUE)
        bottom.set(xlabel="place in the row", ylabel="sum so far")
    show(drawn, f"{title}. Largest so far: {found[:, 0].tolist()}. Sum so far: {found[:, 1].round(3).tolist()}.")
