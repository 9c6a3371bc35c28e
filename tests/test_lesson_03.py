"""helpers.lessons.lesson_03: what its checks count and say, and what it prints."""

import sys

import numpy as np
import pytest

from helpers import tile
from helpers.devices.kernel_text import KernelError
from helpers.lessons import lesson_03
from helpers.measure.timing import Measurement
from helpers.tile import function
from helpers.tile.blocks import default_tile

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


@pytest.mark.parametrize(
    ("check", "source", "fact"),
    [
        (
            lesson_03.check_gram,
            "function (A[M, N]) -> (G) { G[i, j: N, N] = +(A[k, i] * A[k, j]), k < 128; }",
            "gram(",
        ),
        (lesson_03.check_sums, BY_ROWS.replace("b - c - 1 < B", "b - c - 1 < 128"), "sums("),
        (
            lesson_03.check_sums,
            BY_ROWS.replace("F[b, z: B, 1]", "F[b: B]"),
            "with an array of shape (2, 3), Line 5, column 13: F of shape (2,)",
        ),
        (lesson_03.check_gram, "function (A[M, N]) -> (G) { G[i: N] = +(A[k, i]); }", "shape (2, 2), came 2 values"),
        (
            lesson_03.check_gram,
            "function (A[M, N]) -> (G) { G[i, j: M, M] = +(A[i, k] * A[j, k]); }",
            "[11.0, 25.0]]). That is the result if each row meets",
        ),
        (lesson_03.check_sums, BY_ROWS.replace("b - c - 1 < B", "b - c < B"), "if row b counts"),
        (lesson_03.check_sums, BY_ROWS.replace("P + F", "P"), "if the rows before are left out"),
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
    assert verdict.startswith("not yet: ") and fact in verdict.replace("\n    ", " ")


def test_only_the_untouched_line_is_called_a_copy(capsys):
    lesson_03.check_gram("function (A[M, N]) -> (G) { G[i, j: M, N] = +(A[i, j]);  // your code\n}")
    assert capsys.readouterr().out.startswith("not done yet: ")
    lesson_03.check_gram(
        "function (A[M, N]) -> (G) { T[j, i: N, M] = +(A[i, j]); G[i, j: N, N] = +(T[i, k] * T[j, k]); }"
    )
    assert capsys.readouterr().out.startswith("right")


def test_kernels_that_a_driver_lost_are_not_the_learners_mistake(monkeypatch, capsys):
    def lose(context, source):
        raise KernelError("The driver lost its kernels.", "", "")

    monkeypatch.setattr(function.opencl, "build", lose)
    lesson_03.check_sums(BY_ROWS)
    assert capsys.readouterr().out.startswith("cannot tell: ")


@pytest.mark.parametrize(
    ("others", "gain", "against"),
    [(0.0, "1.93 times as fast", "compiler's is 3.8 times as fast as NumPy"), (0.5, "no claim", "NumPy: no claim")],
)
def test_speeds_are_compared_only_where_they_can_be(others, gain, against, monkeypatch, capsys):
    figures = []
    monkeypatch.setattr(lesson_03.plots, "show", lambda figure, alt: figures.append((figure, alt)))
    seconds = {"1 x 16": 2.0, "1 x 64": 2.0, "4 x 16": 1.0, "yours": 1.0, "the compiler's": 1.0, "NumPy": 4.0}
    runs = {
        label: Measurement(label, "a device", tuple(middle + 0.01 * k for k in range(15)))
        for label, middle in seconds.items()
    }
    blocks = {"1 x 16": (1, 16), "1 x 64": (1, 64), "4 x 16": (4, 16), "yours": (2, 32)}
    lesson_03.draw_blocks(runs, blocks, 10, others)
    said = capsys.readouterr().out
    assert ("4 x 16 is" in said) == (gain != "no claim") and against in said
    assert lesson_03.claim_ratio(runs["1 x 16"], runs["4 x 16"], others) == gain
    assert ("4 x 16 is" in capsys.readouterr().out) == (gain != "no claim")
    assert lesson_03.claim_ratio(runs["yours"], runs["the compiler's"], others) == "no claim"
    drawn, alt = figures[0]
    assert "4 x 16 0.31 loaded, vectors of 16:" in alt and "yours, 2 x 32 0.53 loaded, vectors of 16:" in alt
    rows, columns = default_tile(lesson_03.opencl.pick_device())
    assert f"the compiler's, {rows} x {columns} " in alt
    is_marked = "others used 50 %" in alt and all(bar.get_hatch() for bar in drawn.axes[0].patches)
    assert is_marked == (others > 0)


def test_beside_other_programs_a_factor_is_a_bound():
    fast, slow = (Measurement("", "a device", (middle, middle, middle)) for middle in (1.0, 8_000.0))
    assert lesson_03.claim_ratio(fast, slow, 0.9) == "at least 800 times as long"
    assert lesson_03._describe_share(slow, fast, 0.9) == "at least 800"
    assert lesson_03._describe_share(fast, slow, 0.9) == "at most 0.0013"
    assert lesson_03._describe_share(slow, fast, 0.1) == "8,000"
    assert lesson_03._describe_share(slow, fast, 1.0) == "no claim"


@pytest.mark.parametrize(
    ("source", "fused"),
    [
        (lesson_03.THREE, "O = max((A * B) + C, 0.0);"),
        (
            "function (A[N], B[N]) -> (O) { P = A + B; O = P > 0.0 ? -P : 2 * exp(P); }",
            "O = ((A + B) > 0.0) ? (-(A + B)) : (2.0 * exp(A + B));",
        ),
        ("function (A[N]) -> (O, P) { P = A * A; O = P - 1; }", "O = (A * A) - 1.0; P = A * A;"),
    ],
)
def test_a_fused_function_has_one_statement_for_each_output_and_computes_the_same(source, fused):
    one = lesson_03.fuse(source, lesson_03.substitute)
    assert one.partition("{ ")[2] == f"{fused} }}"
    arrays = np.random.default_rng(0).standard_normal((len(tile.parse(source).inputs), 7), dtype=np.float32)
    assert np.allclose(tile.Function(one)(*arrays), tile.Function(source)(*arrays))


def never_ends(tree, name, value):
    while True:
        pass


def puts_in_again(tree, name, value):
    if tree == name:
        return puts_in_again(value, name, value)
    if isinstance(tree, tuple):
        return (tree[0], *(puts_in_again(part, name, value) for part in tree[1:]))
    return tree


def calls_itself_always(tree, name, value):
    return calls_itself_always(tree, name, value)


@pytest.mark.parametrize(("rule", "is_named"), [(puts_in_again, True), (calls_itself_always, False)])
def test_only_where_the_value_holds_the_name_it_is_said_to_be_put_in_once(rule, is_named, capsys):
    lesson_03.check_substitute(rule)
    verdict = capsys.readouterr().out.replace("\n    ", " ")
    assert ("put it in once" in verdict) == is_named and ("RecursionError" in verdict) != is_named


def test_a_rule_that_never_ends_is_stopped_by_its_work_and_what_traced_before_goes_on(capsys):
    before = sys.gettrace()
    lesson_03.check_substitute(never_ends)
    assert capsys.readouterr().out.startswith("not yet: never_ends had not ended after 300,000 steps")
    assert sys.gettrace() is before


def test_the_table_of_sums_has_every_length_of_a_row():
    table = lesson_03.tabulate_sums({128: 5, 1_024: 6}, BY_ROWS)
    assert [row[:2] for row in table.rows[1:]] == [
        ("rows of 128", "5 points"),
        ("rows of 1,024", "6 points"),
        ("NumPy", "16,384 numbers"),
    ]
