"""helpers.lessons.lesson_03: what its checks count and say, and what it prints."""

import pytest

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
    lesson_03.compare_answer(None, 4)
    lesson_03.compare_answer(3, 4)
    assert capsys.readouterr().out == "no prediction made; answer: 4\nyou predicted: 3\nanswer:        4\n"


def test_of_xlas_text_the_rows_are_told():
    text = "%a (p: f32[64,16], q: f32[1024,1]) -> f32[1024,16] {\n  %b = f32[1024,16]{1,0} add(%p, %q)\n}"
    assert lesson_03.list_blocks(text) == "1,024 rows of 16, 64 rows of 16"
    assert lesson_03.list_blocks("ROOT %a = f32[16384,1] b(f32[16384] %c)") == "no rows"


@pytest.mark.parametrize(
    ("check", "source", "fact"),
    [
        (
            lesson_03.check_gram,
            "function (A[M, N]) -> (G) { G[i, j: N, N] = +(A[k, i] * A[k, j]), k < 128; }",
            "yours(",
        ),
        (lesson_03.check_sums, BY_ROWS.replace("b - c - 1 < B", "b - c - 1 < 128"), "yours("),
        (lesson_03.check_gram, "function (A[M, N]) -> (G) { G[i: N] = +(A[k, i]); }", "shape (2, 2), came 2 values"),
        (
            lesson_03.check_gram,
            "function (A[M, N]) -> (G) { G[i, j: N, N] = +(A[k, i * A[k, j]); }",
            "Line 1, column 57",
        ),
    ],
)
def test_a_size_written_as_a_number_another_shape_and_a_mistake_in_writing_are_named(check, source, fact, capsys):
    check(source)
    verdict = capsys.readouterr().out
    assert verdict.startswith("not yet: ") and fact in verdict
