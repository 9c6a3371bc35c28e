"""Lesson 16b, Write digits, piece by piece: its two kernels and their checks; `lesson_16b_writer` has the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from helpers.devices import opencl
from helpers.devices.kernel_text import without_comments
from helpers.judge import canaries, checks, kernel_checks
from helpers.judge.checks import NotDone, NotYet
from helpers.judge.trace import Trace
from helpers.lessons.lesson_16 import DEPTH, set_depth
from helpers.lessons.lesson_16_faults import CLOSE, compute_attention
from helpers.lessons.lesson_16b_faults import Step, name_mistake
from helpers.training.transformer import PIECES
from helpers.training.writer import WORDS

CHOOSE = """
__kernel void choose(__global const float *scores, __global const float *chance, __global int *words,
                     float temperature) {
    int i = get_local_id(0), digit = get_group_id(0);
    __local float sums[64];
    float largest = -INFINITY;
    for (int j = 0; j < 64; j++) largest = fmax(largest, scores[digit * 64 + j]);
    sums[i] = exp((scores[digit * 64 + i] - largest) / temperature);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 1; step < 64; step *= 2) {
        float before = i >= step ? sums[i - step] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[i] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float point = chance[digit] * sums[63];
    float below = i > 0 ? sums[i - 1] : 0;
    if (below <= point && point < sums[i]) words[digit] = i;
}
"""
ATTEND_NEW = """
#define D 16
__kernel void attend_new(__global const float *q, __global const float *k, __global const float *v,
                         __global float *keys, __global float *values, __global float *out,
                         int place, int room) {
    int row = get_global_id(0) * D, head = get_global_id(0) * room;
    for (int c = 0; c < D; c++) {
        keys[(head + place) * D + c] = k[row + c];
        values[(head + place) * D + c] = v[row + c];
    }
    float answer[D] = {0}, largest = -INFINITY, sum = 0;
    for (int j = 0; j <= place; j++) {
        float score = 0;
        for (int c = 0; c < D; c++) score += q[row + c] * keys[(head + j) * D + c];
        score /= sqrt((float)D);
        float next = fmax(largest, score), old = exp(largest - next), weight = exp(score - next);
        sum = sum * old + weight;
        for (int c = 0; c < D; c++) answer[c] = answer[c] * old + weight * values[(head + j) * D + c];
        largest = next;
    }
    for (int c = 0; c < D; c++) out[row + c] = answer[c] / sum;
}
"""
MOST_ROUNDS = 64 + 12 + 6  # of a work-item's loops: the largest score, a tree up and down, a binary search
TEMPERATURES = (1.0, 0.5, 2.0)  # of the launches that are judged
HEADS, ROOM, SMALL = 3, 8, 4  # heads, places and D of the launches of `attend_new` that are judged
PLACES = 6  # of them, one after the other; those of a cache beyond them are never used


# ---------------------------------------------------------------------------------------------- to choose a word


@checks.print_verdict
def check_choose(source: str) -> Iterator[str]:
    """Exercise 1: a word by temperature, softmax, a prefix sum in local memory, and a number."""
    tried = checks.judge_in_subprocess(judge_choose, source=source)
    yield checks.keep_right("choose", source, tried)


def judge_choose(source: str) -> str:
    """Judge the kernel of exercise 1; called in a subprocess."""
    kernel = kernel_checks.build(source, "choose")
    kernel_checks.expect_parameters(kernel, ("float[]", "float[]", "int[]", "float"))
    launch = "one digit, temperature 1, 64 work-items in a group"
    scores, chance = np.zeros(WORDS, np.float32), np.array([0.25], np.float32)  # the point lies where word 16 begins
    given = [scores, chance, np.full(1, -1, np.int32), np.float32(1)]
    traced = kernel_checks.record(kernel, launch, WORDS, WORDS, given)
    _refuse_missing_order(traced, launch, source)
    kernel_checks.refuse_faults(traced, launch)
    kernel_checks.expect_writes(traced, launch, kernel)
    cases = [(temperature, *_draw_scores(temperature)) for temperature in TEMPERATURES]
    chosen = [_run_choose(kernel, each, chance, temperature) for temperature, each, chance in cases]
    for (temperature, each, chance), words in zip(cases, chosen, strict=True):
        expected = find_words(each, chance, temperature)
        wrong = np.flatnonzero(words != expected)
        if len(wrong):
            digit = int(wrong[0])
            nothing = f"but no new word came (the largest score is {each[digit].max():.0f})"
            came = nothing if words[digit] < 0 else f"came word {words[digit]}"
            where = f"temperature {temperature:g}, number {chance[digit]:.4f}"
            raise NotYet(f"{where}: expected word {expected[digit]}, {came}.{_name_fault(cases, chosen)}")
    advice = "The largest score takes 64, and the sums six: no work-item adds or searches through all words."
    kernel_checks.refuse_loops(traced, launch, MOST_ROUNDS, advice)
    return f"{sum(map(len, chosen))} words at {len(cases)} temperatures, no race seen, on {opencl.name(kernel.device)}"


def _refuse_missing_order(traced: Trace, launch: str, source: str) -> None:
    """Refuse a recorded launch in which work-items race over local memory, and say what its barriers must order."""
    text = without_comments(source)
    hint = "In a round, all read before anyone adds, and all add before the next round reads."
    if "CLK_GLOBAL_MEM_FENCE" in text and "CLK_LOCAL_MEM_FENCE" not in text:
        hint = "CLK_GLOBAL_MEM_FENCE orders global memory alone."
    for race in traced.races():
        if not any(f" {name}[" in race for name in traced.lengths):
            raise NotYet(f"{launch}: {race}. {hint}")


def _draw_scores(temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of shape (m, 64) and a number for each row, far from the ends of the words' shares.

    They are the same in each judgment, and choose each word twice.
    """
    rng = kernel_checks.make_generator()
    scores = rng.normal(0, 1.5, (2 * WORDS, WORDS)).astype(np.float32)
    words = np.arange(len(scores)) % WORDS
    # Nearly the highest: its share is wide enough that no device's last digits decide.
    scores[np.arange(len(words)), words] = scores.max(axis=1) - np.float32(0.7 * temperature)
    scores += rng.uniform(-300, 300, (len(words), 1)).astype(np.float32).round()  # which changes no share
    ends = np.concatenate([np.zeros((len(words), 1)), np.cumsum(compute_shares(scores, temperature), axis=1)], axis=1)
    low, high = ends[np.arange(len(words)), words], ends[np.arange(len(words)), words + 1]
    chance = (low + (high - low) * rng.uniform(0.2, 0.8, len(words))).astype(np.float32)
    chance[0] = 0  # which chooses word 0
    return scores, chance


def compute_shares(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Return the softmax of each row of scores divided by the temperature, float64 of the shape of scores."""
    wide = scores.astype(float) / temperature
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def find_words(scores: np.ndarray, chance: np.ndarray, temperature: float, missing: str = "") -> np.ndarray:
    """Return the word that each number chooses, int of shape (m,).

    Args:
        scores: of shape (m, 64).
        chance: a number from 0 up to 1 for each row.
        temperature: above 0.
        missing: a known mistake, one of CHOICE_FAULTS; -1 stands for a word that is never written, UNKNOWN for one that
            the last digits of a device decide.
    """
    if missing == "the highest score were always chosen":
        return scores.argmax(axis=1)
    largest = scores.max(axis=1).astype(float)
    shift = np.zeros(len(scores))  # the exponent of the largest power
    if missing == "the largest score were not subtracted":
        shift = largest / temperature
    elif missing == "only the score were divided by the temperature, and not the largest":
        shift = largest / temperature - largest
    if missing == "the scores were multiplied by the temperature":
        temperature = 1 / temperature
    elif missing == NO_TEMPERATURE:
        temperature = 1
    shares = compute_shares(scores, temperature)
    sums = np.cumsum(shares, axis=1)
    if missing == "each sum left out its own word":
        sums -= shares
    point = chance * sums[:, -1]
    below = np.concatenate([np.zeros((len(sums), 1)), sums[:, :-1]], axis=1)
    hit = (below <= point[:, None]) & (point[:, None] < sums)
    if missing == "the last word were never chosen":
        hit[:, -1] = False
    words = np.where(hit.any(axis=1), hit.argmax(axis=1), -1)
    words[(shift < -85) | (shift > 84)] = UNKNOWN
    words[(shift < -104) | (shift > 89)] = -1  # all powers are 0, or a power is infinite, in float32
    return words


UNKNOWN = -2
NO_TEMPERATURE = "the temperature were left out, or all powers divided by it, which changes no share"
CHOICE_FAULTS = (
    "the highest score were always chosen",
    "the scores were multiplied by the temperature",
    NO_TEMPERATURE,
    "each sum left out its own word",
    "the last word were never chosen",
    "the largest score were not subtracted",
    "only the score were divided by the temperature, and not the largest",
)


def _name_fault(cases: Sequence[tuple[float, np.ndarray, np.ndarray]], chosen: Sequence[np.ndarray]) -> str:
    """Return a sentence on the one known mistake that chooses the same words; empty if there is none, or several."""
    same = []
    for fault in CHOICE_FAULTS:
        found = [find_words(scores, chance, temperature, fault) for temperature, scores, chance in cases]
        if all(np.all((a == b) | (a == UNKNOWN)) for a, b in zip(found, chosen, strict=True)):
            same.append(fault)
    return f" It is as if {same[0]}." if len(same) == 1 else ""


def _run_choose(kernel: opencl.Kernel, scores: np.ndarray, chance: np.ndarray, temperature: float) -> np.ndarray:
    """Return the words that the kernel chooses, -1 where it writes none.

    Below temperature 1, a label's word stands there before, as where a digit begins; otherwise -1 does.
    """
    import pyopencl as cl

    print(f"{len(scores)} digits, temperature {temperature:g}", flush=True)
    before = WORDS + 7 if temperature < 1 else -1
    held = [scores, chance, np.full(len(scores), before, np.int32)]
    buffers = [canaries.Guarded(kernel.queue, array.reshape(-1), canaries.OUTSIDE, 64) for array in held]
    given = [buffer.inside for buffer in buffers]
    try:
        kernel.kernel(kernel.queue, (scores.size,), (WORDS,), *given, np.float32(temperature))
        read = [buffer.read() for buffer in buffers]
    except cl.Error as error:
        raise NotYet(f"the kernel could not run: {str(error).strip().splitlines()[0]}") from None
    if any(stray is not None for _, stray in read):
        raise NotYet("the kernel writes outside its arrays.")
    if any(
        not np.array_equal(bits, array.reshape(-1).view(np.uint32))
        for (bits, _), array in zip(read, held[:2], strict=False)
    ):
        raise NotYet("the kernel changes its scores or numbers; it may only write the words.")
    words = read[2][0].view(np.int32)
    return np.where(words == before, -1, words)


# ---------------------------------------------------------------------------------------------- the cache


@checks.print_verdict
def check_attend_new(source: str) -> Iterator[str]:
    """Exercise 2: attention for one new row, beside a cache of keys and values."""
    tried = checks.judge_in_subprocess(judge_attend_new, source=source)
    yield checks.keep_right("attend_new", source, tried)


def judge_attend_new(source: str) -> str:
    """Judge the kernel of exercise 2, with D = 4, which is recorded, and with D = 16; called in a subprocess."""
    kernel = kernel_checks.build(source, "attend_new")
    if not DEPTH.search(source):
        raise NotYet("expected the line `#define D 16` at the top, as it was at first: the check tries another D, too.")
    kernel_checks.expect_parameters(kernel, ["float[]"] * 6 + ["int"] * 2)
    small, rng = kernel_checks.build(set_depth(source, SMALL), "attend_new"), kernel_checks.make_generator()
    rows = rng.normal(size=(3, HEADS, PLACES, SMALL)).astype(np.float32)
    held = rng.normal(size=(2, HEADS, ROOM, SMALL)).astype(np.float32)  # left there by the digit before
    right, steps, answers = held, [], []
    for place in range(PLACES):
        launch = f"D = {SMALL}, room = {ROOM}, place = {place}, {HEADS} work-items"
        given = [*np.ascontiguousarray(rows[:, :, place]), *held, np.zeros((HEADS, SMALL), np.float32)]
        arguments = [each.reshape(-1) for each in given]
        traced = kernel_checks.record(small, launch, HEADS, 1, [*arguments, np.int32(place), np.int32(ROOM)])
        kernel_checks.expect_writes(traced, launch, small)
        kernel_checks.refuse_faults(traced, launch)
        _refuse_wrong_place(traced, launch, place)
        steps.append(Step(rows[:, :, place], right, place))
        answers.append(traced.arrays[5].reshape(HEADS, SMALL))
        held, right = np.stack(traced.arrays[3:5]).reshape(held.shape), steps[-1].keep_new()
        why = _explain_reads(traced, place) or name_mistake(steps, answers)
        refuse_wrong_answer(answers[-1], steps[-1].compute_answer(), launch, why)
    places = _judge_long(kernel, rng)
    return f"{PLACES} places recorded and {places} more, no race seen, on {opencl.name(kernel.device)}"


def _find_places(traced: Trace, array: int, writes: bool) -> set[int]:
    """Return the places of a cache that the work-items write, or read: a place counts from the start of a head's room.

    Args:
        traced: the record.
        array: 3 for the keys, 4 for the values.
        writes: whether to return the places that are written.
    """
    name = list(traced.lengths)[array]
    touched = [t for t in traced.touches if t.array == name and (t.writes if writes else t.reads)]
    return {touch.index // SMALL - ROOM * touch.item for touch in touched}


def _refuse_wrong_place(traced: Trace, launch: str, place: int) -> None:
    """Refuse a launch that does not keep the new key and value, or not in their place alone."""
    kept = {"key": _find_places(traced, 3, writes=True), "value": _find_places(traced, 4, writes=True)}
    if not any(kept.values()):
        raise NotDone(f"the kernel keeps nothing in the cache ({launch}).")
    for what, written in kept.items():
        if not written:
            raise NotYet(f"{launch}: the new {what} is not kept in the cache, so no later piece can see it.")
        if written != {place}:
            listed = ", ".join(map(str, sorted(written)))
            raise NotYet(f"{launch}: a {what} is written at place {listed} of its head's room; expected place {place}.")


def _explain_reads(traced: Trace, place: int) -> str:
    """Return a sentence on which places of the cache a launch with a wrong answer reads; empty if they are right."""
    read = _find_places(traced, 3, writes=False)
    if later := {each for each in read if each > place}:
        return f" It reads the key at place {max(later)}, which is not yet written: pieces to come must not be seen."
    if not read:
        return " It reads no key in the cache: a new piece meets all keys kept there, its own among them."
    if missing := set(range(place + 1)) - read:
        whose = "its own" if missing == {place} else f"the one at place {min(missing)}"
        return f" It reads the keys of {len(read)} places, but not {whose}: a new piece sees all before it and itself."
    return ""


def refuse_wrong_answer(actual: np.ndarray, expected: np.ndarray, launch: str, why: str) -> None:
    """Refuse answers, of shape (heads, d), that differ from what was expected."""
    wrong = np.argwhere(~np.isclose(actual, expected, CLOSE, CLOSE))
    if len(wrong):
        head, c = map(int, wrong[0])
        came = f"expected {expected[head, c]:.6g}, came {actual[head, c]:.6g}"
        raise NotYet(f"{launch}: head {head}, number {c} of its answer: {came}.{why}")


def _judge_long(kernel: opencl.Kernel, rng: np.random.Generator) -> int:
    """Write a cache to its last place with D = 16, and refuse wrong answers; return the number of places."""
    places, queue = PIECES + 1, kernel.queue  # one more than the lesson's: no kernel may count on 49
    rows = rng.normal(size=(3, HEADS, places, 16)).astype(np.float32)
    held = [np.full(HEADS * places * 16, np.nan, np.float32) for _ in range(2)]  # no answer may use what is not written
    kept = [canaries.Guarded(queue, each, canaries.OUTSIDE, 64) for each in held]
    for place in range(places):
        print(f"D = 16, room = {places}, place = {place}", flush=True)
        new = [np.ascontiguousarray(each[:, place]).reshape(-1) for each in rows]
        given = [canaries.Guarded(queue, each, canaries.OUTSIDE, 64) for each in (*new, np.zeros_like(new[0]))]
        buffers = [each.inside for each in (*given[:3], *kept, given[3])]
        kernel.kernel(queue, (HEADS,), None, *buffers, np.int32(place), np.int32(places))
        answer = given[3].read()[0].view(np.float32).reshape(HEADS, 16)
        expected = compute_attention(rows[0][:, place : place + 1], *rows[1:, :, : place + 1])[:, 0]
        before = f" The {place} places before it were right." if place else ""
        refuse_wrong_answer(answer, expected, f"D = 16, room = {places}, place = {place}", before)
    if any(each.read()[1] is not None for each in kept):
        raise NotYet("D = 16: the kernel writes outside the cache.")
    return places
