"""helpers.lessons.lesson_03: what its checks count and say, and what it prints."""

import numpy as np
import pytest

from helpers.judge import checks
from helpers.lessons import lesson_03

BY_ROWS = """function (I[B, R]) -> (O) {
    T[b: B] = +(I[b, k]);
    F[b, z: B, 1] = +(T[c]), b - c - 1 < B;
    P[b, r: B, R] = +(I[b, k]), r - k < R;
    O = P + F;
}"""


@pytest.mark.parametrize(
    ("source", "shape", "asked"),
    [(lesson_03.CUMULATIVE, (128 * 128,), 128**4), (BY_ROWS, (6, 10), 6 * 10 + 6 * 5 + 6 * 10 * 10 + 6 * 10)],
)
def test_every_turn_of_every_loop_is_a_point(source, shape, asked):
    assert lesson_03.count_points(source, shape) == asked


def test_an_answer_that_follows_from_rules_is_not_called_measured(capsys):
    lesson_03.answer(None, 4)
    lesson_03.answer(3, 4)
    assert capsys.readouterr().out == "no prediction made; answer: 4\nyou predicted: 3\nanswer:        4\n"


def test_of_xlas_text_the_rows_are_told():
    text = "%a (p: f32[64,16], q: f32[1024,1]) -> f32[1024,16] {\n  %b = f32[1024,16]{1,0} add(%p, %q)\n}"
    assert lesson_03.blocks(text) == "1,024 rows of 16, 64 rows of 16"
    assert lesson_03.blocks("ROOT %a = f32[16384,1] b(f32[16384] %c)") == "no rows"


@pytest.mark.parametrize(("check", "source"), [
    (lesson_03.check_gram, "function (A[M, N]) -> (G) { G[i, j: N, N] = +(A[k, i] * A[k, j]), k < 128; }"),
    (lesson_03.check_sums, BY_ROWS.replace("b - c - 1 < B", "b - c - 1 < 128")),
])  # fmt: skip
def test_a_size_written_as_a_number_is_found(check, source, capsys):
    check(source)
    assert capsys.readouterr().out.startswith("not yet: for yours(")


@checks.verdict
def tile_function(source, reference, cases):
    yield lesson_03.judge_tile(source, reference, cases)


ROWS = "function (A[M, N]) -> (S) { S[i: M] = +(A[i, j]); }"


def tile_cases(rng):
    return [(rng.integers(1, 9, shape).astype(np.float32),) for shape in ((2, 3), (1, 1), (1, 40), (300, 7))]


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (ROWS, "right"),
        (ROWS.replace("+(", "*("), "not yet: for yours(np.array([["),
        (ROWS.replace("[i: M]", "[j: N]"), "came 3 values"),
        (ROWS.replace("i, j]", "i, j"), "line 1, column"),
        ("function (A[M, N]) -> (S) {\n    // your code\n}", "not done yet"),
        (..., "not done yet"),
    ],
)
def test_tile_functions_are_judged(capsys, source, verdict):
    tile_function(source, lambda a: a.sum(axis=1), tile_cases)
    assert verdict.lower() in capsys.readouterr().out.lower()
