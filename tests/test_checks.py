"""judge.checks: right answers pass, wrong ones are refused with what, where; grading raises and stays silent."""

import importlib
import inspect
import math
import pkgutil
import re

import numpy as np
import pyopencl as cl
import pytest

from helpers import lessons
from helpers.devices import opencl
from helpers.judge import checks, kernel_checks
from helpers.judge.checks import CheckFailed

pytestmark = pytest.mark.usefixtures("one_context")


def double_of(rng):
    return [(1,), (int(rng.integers(2, 99)),)]


def double(x):
    return 2 * x


@checks.print_verdict
def function(learner, reference, cases):
    yield checks.judge_function(learner, reference, cases)


@checks.print_verdict
def kernel(source, name, inputs, reference, **how):
    yield kernel_checks.judge_kernel(kernel_checks.build(source, name), inputs, reference, **how)


def output(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return "\n".join(line for line in out.strip().splitlines() if not line.startswith("n = "))  # what a judge is at


# ------------------------------------------------------------------------------------------------ verdicts


def todo(x):
    raise NotImplementedError


def test_a_second_judgment_sees_the_same_inputs():
    seen = ([], [])
    source = "__kernel void twice(__global const int *x, __global int *out, const int n) {"
    source += "int i = get_global_id(0); if (i < n) { out[i] = 2 * x[i]; } }"
    for inputs in seen:
        reference = lambda x, inputs=inputs: inputs.append(x.tolist()) or 2 * x  # noqa: E731
        kernel_checks.judge_kernel(kernel_checks.build(source, "twice"), ("int[]",), reference, sizes=(1, 65))
    assert seen[0] == seen[1]
    signs = [(min(x) > 0, max(x) < 0) for x in seen[0]]
    assert {(True, False), (False, True), (False, False)} == set(signs)
    assert any(len(x) > 1 and len(set(x)) == 1 for x in seen[0])


@pytest.mark.parametrize(
    ("learner", "expected"),
    [
        (lambda x: None if x < 2 else x, "right"),
        (lambda x: x, "not yet: for <lambda>(1) expected None"),
        (lambda x: None, "not done yet: "),
        (lambda x: ..., "not done yet: "),
        (lambda x: None if x != 2 else x, "not yet: <lambda>(3)"),
        (lambda x: None if x != 3 else x, "not yet: <lambda>(2)"),
        (todo, "not done yet: "),
    ],
)
def test_none_is_right_where_the_reference_returns_it(capsys, learner, expected):
    function(learner, lambda x: None if x < 2 else x, lambda rng: [(1,), (2,), (3,)])
    assert output(capsys).startswith(expected)


def test_grading_raises_for_wrong_and_untouched_and_stays_silent(capsys, monkeypatch):
    monkeypatch.setenv(checks.GRADE, "1")
    with pytest.raises(CheckFailed, match=r"<lambda>\(1\) expected 2, came 1"):
        function(lambda x: x, double, double_of)
    with pytest.raises(CheckFailed, match="not done yet"):
        function(lambda x: ..., double, double_of)
    assert output(capsys) == ""
    function(double, double, double_of)
    assert output(capsys).startswith("right")


# ------------------------------------------------------------------------------------------------ functions


def stops(x):
    raise KeyError("nothing here")


def forgets_to_copy(x):
    x.sort()
    return x


calls = []


def remembers(x):
    calls.append(x)
    return 2 * x + len(calls) - 1


@pytest.mark.parametrize(
    ("learner", "reference", "cases", "complaint"),
    [
        (stops, double, [(1,)], "stops(1) stopped with KeyError"),
        (forgets_to_copy, np.sort, [(np.array([2, 1]),)], "changed its own argument"),
        (remembers, double, [(4,)], "expected 8, came 9"),
        (lambda: 1, double, [(4,)], "stopped with TypeError"),
        (lambda x: [8, 8], double, [(4,)], "came 2 values"),
        (lambda x: x * 2.0, double, [(4,)], "`int(...)`"),
        (lambda x: {0: 8}, lambda x: [8, 8], [(4,)], "one dict"),
        (lambda x: np.nan, double, [(4,)], "came nan"),
        (lambda x: 1, lambda x: True, [(4,)], "expected True"),
        (lambda x: x + 1e-4, lambda x: x, [(1.0,)], "expected 1.0"),
        (lambda x: np.array([7, 5]), lambda x: {"a": 1}, [(4,)], "expected {'a': 1}, came np.array([7, 5])"),
    ],
)
def test_wrong_functions_are_refused(capsys, learner, reference, cases, complaint):
    calls.clear()
    function(learner, reference, lambda rng: cases)
    verdict = output(capsys)
    assert verdict.startswith("not yet: ")
    assert complaint in verdict


@pytest.mark.parametrize(
    ("learner", "reference"),
    [
        (lambda x: [x, x], lambda x: np.array([x, x])),
        (lambda x: 0.1 + 0.2, lambda x: 0.3),
        (lambda x: np.bool_(True), lambda x: True),
    ],
    ids=["a list for an array", "rounding", "a bool of NumPy's"],
)
def test_what_means_the_same_is_right(capsys, learner, reference):
    function(learner, reference, lambda rng: [(3,)])
    assert output(capsys).startswith("right")


# ------------------------------------------------------------------------------------------------ odd answers

ODD = [
    None,
    ...,
    True,
    np.bool_(True),
    math.nan,
    10**400,
    -1,
    2.5,
    np.float32(2),
    np.int64(3),
    1j,
    "",
    "text",
    b"bytes",
    [],
    [1, 2],
    [None],
    [10**400],
    [[1], [1, 2]],
    (1,),
    ((1, 2), 3),
    {},
    {"a": np.array([1, 2])},
    {1, 2},
    range(3),
    int,
    print,
    np.array(5),
    np.array([]),
    np.array([75.0, 25.0]),
    np.zeros((2, 3)),
    np.zeros((0, 2)),
    np.array([1j]),
    np.array(["a", "b"]),
    np.array([None, "a"], object),
    np.array([{}, []], object),
    [np.array([1, 2])],
    ["a", np.array([1, 2])],
    np.datetime64("2020-01-01"),
    memoryview(b"ab"),
    (letter for letter in "ab"),
    object(),
]
NEEDS_ADAPTER = {"lesson_14", "lesson_14_web"}  # of WebGPU, looked for before the answer is


def plain_checks():
    """The checks that take one plain argument, by the name of lesson and check."""
    found = {}
    for lesson in sorted({file.name for file in pkgutil.iter_modules(lessons.__path__)} - NEEDS_ADAPTER):
        module = importlib.import_module(f"helpers.lessons.{lesson}")
        for name, check in inspect.getmembers(module, inspect.isfunction):
            own = name.startswith("check_") and check.__module__ == module.__name__
            if own and len(inspect.signature(check).parameters) == 1:
                found[f"{lesson}.{name}"] = check
    assert len(found) > 10
    return [pytest.param(check, id=name) for name, check in found.items()]


def odd_answers(check):
    """Odd values; for a check that takes no text, also functions that return them, or cannot be called, or raise."""
    if [*inspect.signature(check).parameters] == ["source"]:  # a text would start a process
        return [odd for odd in ODD if not isinstance(odd, str)]
    several = [many for odd in ODD for many in (odd, (odd, odd), (odd, odd, odd), [odd, odd])]
    functions = [lambda *given, many=many: many for many in several] + [
        lambda *given: given[0],
        lambda *given: given[-1],
    ]
    diagnoses = [dict.fromkeys("ABCDEFGHI", [odd] * parts) for odd in ODD for parts in (1, 2, 3)]
    return [*ODD, *functions, *diagnoses, lambda: 1, lambda a, b, c, d, e, f, g, h: 1, stops, lambda *given: 1 / 0]


@pytest.mark.parametrize("check", plain_checks())
def test_no_answer_makes_a_check_raise(monkeypatch, check):
    monkeypatch.setenv(checks.GRADE, "1")
    for odd in odd_answers(check):
        with pytest.raises(CheckFailed):
            check(odd)


# ------------------------------------------------------------------------------------------------ predictions


def test_a_prediction_stands_beside_what_was_measured(capsys):
    checks.compare_prediction(None, 2, "work-items")
    assert output(capsys) == "no prediction made; measured: 2 work-items"
    checks.compare_prediction(3, 2.5, "s")
    assert output(capsys).splitlines() == ["you predicted: 3 s", "measured:      2.5 s"]
    checks.compare_prediction(250, 2.5, "points", most=100)
    assert "never larger" in output(capsys).splitlines()[-1]
    checks.compare_prediction("numpy", "jax")
    assert len(output(capsys).splitlines()) == 2


# ------------------------------------------------------------------------------------------------ kernels

SCALE = """
__kernel void scale(__global const float *x, __global float *out, const int n) {
    int i = get_global_id(0);
    if (i < n) out[i] = 2 * x[i];
}
"""
SMOOTH = """
__kernel void smooth(__global const float *x, __global float *out, const int n) {
    __local float near[66];
    int i = get_global_id(0), l = get_local_id(0);
    if (i < n) near[l + 1] = x[i];
    if (l == 0 && i > 0) near[0] = x[i - 1];
    if (l + 1 == get_local_size(0) && i + 1 < n) near[l + 2] = x[i + 1];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) out[i] = i == 0 || i == n - 1 ? near[l + 1] : (near[l] + near[l + 1] + near[l + 2]) / 3;
}
"""


def judge(capsys, source):
    kernel(source, "scale", ("float[]",), lambda x: 2 * x)
    return output(capsys)


@pytest.mark.parametrize("source", ["", "   ", None, ..., SCALE.replace("if (i < n) out[i] = 2 * x[i];", "")])
def test_untouched_kernels_are_not_done_yet(capsys, source):
    assert judge(capsys, source).startswith("not done yet: ")


BODY = "if (i < n) out[i] = 2 * x[i];"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("out[i] = 2 * x[i];", "work-item 9 reads element 9 of x"),
        ("if (i < n) out[i - 1] = 2 * x[i];", "work-item 0 writes element -1 of out"),
        ("if (i < n - 1) out[i] = 2 * x[i];", "it was never written"),
        ("float4 v = vload4(i, x); if (i < n) out[i] = 2 * x[i] + 0 * v.x;", "reads element 9 of x"),
        ("if (i < n) out[i] = x[i - 1] * 0 + 2 * x[i];", "work-item 0 reads element -1 of x"),
        ("if (i < n) out[i] = 2 + x[i];", "expected"),
        ("if (i < n) { out[i] = 2 * x[i]; ((__global float *)x)[i] = 0; }", "changed its input x"),
        ("short k = i; if (k < n) out[k] = 2 * x[k];", "element -32768 of the output"),
        ("if (i < n) out[i] = 2 * x[i]; if (n > 9000 && i == 0) out[-60000] = 0;", "element -60000 of the output"),
        ("if (i < n) out[i] = 2 * y[i];", "does not compile"),
        ("for (int k = 0; k < n; k++) out[k] = 2 * x[k];", "work-items 0 and 1 both write out[0]"),
        ("if (i < n) out[i] += 2 * x[i];", "held before"),
        ("while (i < n) out[i] = 2 * x[i];", "does not end"),
        ("if (i == 0) for (int k = 0; k < n; k++) out[k] = 2 * x[k];", "work-item 0 does most of the work alone"),
        (  # one work-item of a group for all of it
            "if (get_local_id(0) == 0) for (int k = i; k < min(n, i + (int)get_local_size(0)); k++) out[k] = 2 * x[k];",
            "work-item 0 writes at least 4 elements",
        ),
    ],
)
def test_wrong_kernels_are_refused(capsys, body, complaint):
    verdict = judge(capsys, SCALE.replace(BODY, body))
    assert verdict.startswith("not yet: ")
    # On a GPU another array may lie where this one would end long before.
    elsewhere = complaint.endswith("of the output") and "changed its input x" in verdict
    assert complaint in verdict or elsewhere


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("void scale", "void scala"), "'scale'"),
        (("__kernel", ""), "'scale'"),
        (("const int n", "const int m, const int n"), "came one of 4"),
        (("float *x", "int *x"), "`__global const int *x`"),
    ],
)
def test_wrong_signatures_are_refused(capsys, change, complaint):
    verdict = judge(capsys, SCALE.replace(*change))
    assert verdict.startswith("not yet: ")
    assert complaint in verdict


@pytest.mark.parametrize(
    "body",
    [
        "for (int k = i; k < n; k += get_global_size(0)) out[k] = 2 * x[k];",
        "if (i < n) { __global float *p = out + i; p[0] = 2 * vload2(0, x + (i ? i - 1 : i)).s1; p[0] = 2 * x[i]; }",
    ],
)
def test_right_kernels_written_otherwise_pass(capsys, body):
    if "vload2" in body:
        body = body.replace("if (i < n)", "if (i < n && n < 2) out[i] = 2 * x[i]; else if (i < n)")
    assert judge(capsys, SCALE.replace(BODY, body)).startswith("right")


def test_a_right_kernel_that_hides_from_the_recorder_is_right_with_a_word_about_it(capsys):
    verdict = judge(capsys, "#define X(...) x[i]\n" + SCALE.replace("x[i]", "X()"))
    assert verdict.startswith("right") and "not followed: line 5: `X()`" in verdict


def test_a_wrong_value_comes_with_the_inputs_that_belong_to_it(capsys):
    verdict = judge(capsys, SCALE.replace("2 * x[i]", "2 + x[i]"))
    x, expected, actual = map(float, re.search(r"x\[0\] = (\S+)\): expected (\S+), came (\S+)\.", verdict).groups())
    assert 2 * x == pytest.approx(expected, rel=1e-4)
    assert 2 + x == pytest.approx(actual, rel=1e-4, abs=1e-5)


def smoothed(x):
    means = x.copy()
    means[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3
    return means


def test_one_verdict_takes_one_context_and_two_builds(monkeypatch, capsys):
    """The kernel itself, and the one that records."""
    opencl.pick_device()  # the first time in a process, it tries the compiler
    made = []
    context, build = cl.Context, cl.Program.build
    monkeypatch.setattr(cl, "Context", lambda *given: made.append("context") or context(*given))
    monkeypatch.setattr(cl.Program, "build", lambda *given, **how: made.append("build") or build(*given, **how))
    kernel = kernel_checks.build(SMOOTH, "smooth")
    kernel_checks.judge_kernel(kernel, ("float[]",), smoothed, traced=kernel_checks.WHOLE_GROUPS)
    with pytest.raises(checks.NotYet, match="accesses to global memory for 256 elements"):
        kernel_checks.judge_accesses(kernel)
    assert made == ["context", "build", "build"]


# ---------------------------------------------------------------------------------------------- accesses

ONCE = "__kernel void f(__global const float *x, __global float *out, const int n) { BODY }"


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("int i = get_global_id(0); out[i] = x[i];", "right"),
        ("int i = get_global_id(0); out[i] = x[i] + x[0] - x[0];", "1024 accesses to global memory for 256 elements"),
        ("int i = get_global_id(0); out[i] = vload4(0, x).x + x[i];", "1536 accesses to global memory"),
    ],
)
def test_a_kernel_that_asks_memory_too_often_is_refused(capsys, body, verdict):
    @checks.print_verdict
    def accesses(source):
        yield kernel_checks.judge_accesses(kernel_checks.build(source, "f"))

    accesses(ONCE.replace("BODY", body))
    assert verdict in capsys.readouterr().out
