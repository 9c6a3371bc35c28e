"""helpers.trace: who touched what, on real OpenCL; races are found whatever one run returns."""

from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import opencl, trace
from helpers.errors import WorkshopError

ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
    int i = get_global_id(0);  // not a[i], and not "c[99]"
    c[i] = a[i] + b[i];
}
"""


def traced(source, name, global_size, local_size, arguments):
    return trace.record(opencl.Kernel(source, name), global_size, local_size, arguments)


def floats(n):
    return np.arange(n, dtype=np.float32)


def test_the_trace_has_ids_and_touches():
    seen = traced(ADD, "add", (12,), (4,), [floats(10), floats(10), floats(10)])
    assert seen.global_ids[:, 0].tolist() == list(range(12))
    assert seen.local_ids[:, 0].tolist() == [0, 1, 2, 3] * 3
    assert seen.group_ids[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert seen.global_accesses.tolist() == [3] * 12
    assert [(t.array, t.index, t.reads, t.writes) for t in seen.touches if t.item == 5] in (
        [("a", 5, True, False), ("b", 5, True, False), ("c", 5, False, True)],
        [("c", 5, False, True), ("a", 5, True, False), ("b", 5, True, False)],
    )
    assert {(t.item, t.array) for t in seen.outside} == {(i, array) for i in (10, 11) for array in "abc"}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("c[i] += a[i];", {("c", True, True), ("a", True, False)}),
        ("c[i]++;", {("c", True, True)}),
        ("--c[i];", {("c", True, True)}),
        ("c[i] <<= 1;", {("c", True, True)}),
        ("if (a[i] == 1 && c[i] == 2) { }", {("a", True, False), ("c", True, False)}),
        ("atomic_add(&c[i], 1);", {("c", True, True)}),
        ("c[a[i]] = 7;", {("a", True, False), ("c", False, True)}),
        ("/* c[0] = 1; */ // a[0]\n", set()),
    ],
)
def test_reads_and_writes_are_told_apart(statement, expected):
    source = f"__kernel void k(__global const int *a, __global int *c) {{ int i = get_global_id(0); {statement} }}"
    a = np.array([2, 1, 0, 3], np.int32)
    seen = traced(source, "k", (4,), (2,), [a, a.copy()])
    assert {(t.array, t.reads, t.writes) for t in seen.touches} <= expected
    assert {t.array for t in seen.touches if t.item == 1} == {array for array, _, _ in expected}


def test_an_index_from_an_array_is_followed():
    source = "__kernel void gather(__global const int *at, __global const float *x, __global float *out) {\n"
    source += "    out[get_global_id(0)] = x[at[get_global_id(0)]];\n}"
    arrays = [np.array([3, 2, 9, -1], np.int32), floats(4), floats(4)]
    seen = traced(source, "gather", (4,), (4,), arrays)
    assert [t.index for t in seen.touches if t.array == "x"] == [3, 2, 9, -1]
    assert [t.index for t in seen.outside] == [9, -1]


def test_two_dimensions():
    source = """__kernel void t(__global const float *a, __global float *c, const int w, const int h) {
        int x = get_global_id(0), y = get_global_id(1);
        c[x * h + y] = a[y * w + x]; }"""
    seen = traced(source, "t", (4, 2), (2, 2), [floats(8), floats(8), np.int32(4), np.int32(2)])
    assert seen.global_ids[5].tolist() == [1, 1, 0]
    assert [t.index for t in seen.touches if t.item == 5 and t.array == "a"] == [5]
    assert [t.index for t in seen.touches if t.item == 5 and t.array == "c"] == [3]


TILED = """
#define T 4
__kernel void product(__global const float *a, __global const float *b, __global float *c, int n) {
    __local float ta[T][T], tb[T][T];  // pieces that the work-group shares
    local int order[T];
    int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    order[x] = x;
    for (int start = 0; start < n; start += T) {
        ta[y][x] = a[row * n + start + x];
        tb[y][x] = b[(start + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < T; i++) sum += ta[y][i] * tb[order[i]][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}"""


def test_accesses_to_global_and_to_local_memory_are_counted():
    """n = 8 in tiles of 4: two reads a tile and one result; in local memory two writes and 3 x 4 reads a tile."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 64), dtype=np.float32)
    seen = traced(TILED, "product", (8, 8), (4, 4), [a, b, floats(64), np.int32(8)])
    assert seen.global_accesses.tolist() == [2 * 2 + 1] * 64
    assert seen.local_accesses.tolist() == [1 + 2 * (2 + 3 * 4)] * 64
    assert seen.global_bytes.tolist() == [4 * (2 * 2 + 1)] * 64
    assert seen.outside == []
    plain = traced(ADD, "add", (4,), (4,), [floats(4)] * 3)
    assert plain.local_accesses.tolist() == [0] * 4


def test_recording_changes_no_result():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 8, 8), dtype=np.float32)
    plain = opencl.Kernel(TILED, "product")
    recorded = cl.Kernel(opencl.build(plain.context, trace.instrument(plain)[0]), "product")
    flags, c = cl.mem_flags, np.zeros((8, 8), np.float32)
    log = np.zeros((64, trace.HEADER + trace.TOUCH * trace.MAX_TOUCHES), np.int32)
    *inputs, log = (
        cl.Buffer(plain.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array) for array in (a, b, c, log)
    )
    recorded(plain.queue, (8, 8), (4, 4), *inputs, np.int32(8), log, *[np.int32(256)] * 3)
    cl.enqueue_copy(plain.queue, c, inputs[2])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_a_vector_is_one_element():
    source = "__kernel void twice(__global const float4 *x, __global float4 *y) {\n\
        int i = get_global_id(0); y[i] = 2.0f * x[i + 1]; }"
    seen = traced(source, "twice", (4,), (2,), [floats(16), floats(16)])
    assert seen.lengths == {"x": 4, "y": 4}
    assert seen.global_accesses.tolist() == [2] * 4
    assert [(touch.item, touch.index) for touch in seen.outside] == [(3, 4)]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]), st.integers(-3, 3))
def test_exactly_the_work_items_beyond_the_end_are_outside(n, group, shift):
    source = f"__kernel void k(__global const float *x, __global float *out, const int n) {{\n\
        int i = get_global_id(0); if (i < n) out[i] = x[i + ({shift})]; }}"
    size = -(-n // group) * group
    seen = traced(source, "k", (size,), (group,), [floats(n), floats(n), np.int32(n)])
    assert {t.item for t in seen.outside} == {i for i in range(n) if not 0 <= i + shift < n}


def test_wrong_sizes_and_arguments_give_messages():
    for sizes in [((10,), (4,)), ((12,), None), ((4, 4), (4,)), ((0,), (4,)), (10, 4)]:
        with pytest.raises(WorkshopError, match="must be a multiple of the work-group"):
            traced(ADD, "add", *sizes, [floats(4)] * 3)
    for argument in (10, 1.5, [1.0], np.int32(4)):
        with pytest.raises(WorkshopError, match="`__global const float \\*a` cannot take"):
            traced(ADD, "add", 4, 4, [argument, floats(4), floats(4)])
    with pytest.raises(WorkshopError, match="takes 3 arguments, 2 were given"):
        traced(ADD, "add", (4,), (4,), [floats(4)] * 2)


@pytest.mark.parametrize(
    ("before", "body", "unseen"),
    [
        ("", "out[i] = x[i] & 3;", []),
        ("", "part[i] = x[i]; tile[i][1] = 1; out[i] = part[i] + tile[i][1];", []),
        ("", "atomic_add(&out[0], x[i]); atomic_inc(out); atomic_max((__global int *)&out[1], 3);", []),
        ("", "out[i] = *(x + i);", ["`x` in `out[i] = *(x + i)`"]),
        ("", "out[i] = vload2(0, x + i).x;", ["`x` in `out[i] = vload2(0, x + i).x`"]),
        ("", "if (i) { __global const int *p = &x[i]; out[i] = *p; }", ["`x` in `__global const int *p = &x[i]`"]),
        ("int f(__global const int *p) { return p[0]; }", "out[i] = f(x);", ["`x` in `out[i] = f(x)`"]),
        ("", "__local int *p = part; p[i] = 1;", ["`part` in `__local int *p = part`"]),
        ("", "__local int *p = tile[i]; p[0] = 1;", ["`tile` in `__local int *p = tile[i]`"]),
        ("", "total = x[i];", ["`total` in `total = x[i]`"]),
        ("#define AT(k) x[k]", "out[i] = AT(i);", ["the macro `#define AT(k) x[k]`"]),
        ("#define WAIT barrier(1)", "WAIT;", ["the macro `#define WAIT barrier(1)`"]),
        ("#define AT(k) *(x + (k))", "out[i] = AT(i);", ["the macro `#define AT(k) *(x + (k))`"]),
        ("#define T 4\n#define SQUARE(a) ((a) * (a))", "out[i] = SQUARE(x[T]);", []),
    ],
)
def test_what_cannot_be_followed_is_told(before, body, unseen):
    source = f"""{before}
    __kernel void k(__global const int *x, __global int *out) {{
        __local int part[8], tile[8][2], total;
        int i = get_global_id(0);
        {body}
    }}"""
    seen = traced(source, "k", 8, 8, [np.zeros(8, np.int32), np.zeros(8, np.int32)])
    assert seen.unseen == unseen
    assert seen.report().count("not followed: ") == len(unseen)


def test_more_touches_than_are_listed_are_still_counted():
    source = "__kernel void many(__global float *x, const int n) { for (int i = 0; i < n; i++) x[i % 4] += 1.0f; }"
    assert traced(source, "many", (1,), (1,), [floats(4), np.int32(trace.MAX_TOUCHES)]).unseen == []
    seen = traced(source, "many", (1,), (1,), [floats(4), np.int32(500)])
    assert seen.global_accesses.tolist() == [500]
    assert len(seen.touches) == trace.MAX_TOUCHES
    assert seen.unseen == [f"what a work-item touches after its first {trace.MAX_TOUCHES} accesses is only counted"]


def test_each_element_of_a_local_array_of_two_dimensions_is_its_own():
    source = """__kernel void turn(__global const int *x, __global int *out) {
        __local int tile[3][5];
        int i = get_local_id(0);
        tile[i % 3][i / 3] = x[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        out[i] = tile[i / 5][i % 5];
    }"""
    seen = traced(source, "turn", 15, 15, [np.arange(15, dtype=np.int32)] * 2)
    assert seen.report() == "no race seen, among 15 work-items"
    local = [touch for touch in seen.touches if touch.array == "tile"]
    assert [(t.index, t.writes, t.barriers) for t in local if t.item == 4] == [(6, True, 0), (4, False, 1)]
    assert seen.local_accesses.tolist() == [2] * 15


# ------------------------------------------------------------------------------------------------ races


TREE = """
__kernel void group_sums(__global const int *x, __global int *sums, const int n) {
    __local int part[8];
    int i = get_global_id(0), me = get_local_id(0);
    part[me] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // a comment with barrier(x) and part[99]
    for (int step = 4; step > 0; step /= 2) {
        if (me < step) {
            part[me] += part[me + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        sums[get_group_id(0)] = part[0];
    }
}
"""


def find(source, n=14):
    x, sums = np.arange(n, dtype=np.int32), np.zeros(2, np.int32)
    return traced(source, "group_sums", 16, 8, [x, sums, np.int32(n)])


def changed(old, new):
    assert TREE.count(old) == 1
    return TREE.replace(old, new)


def test_a_right_kernel_has_no_race_and_all_work_items_meet_all_barriers():
    found = find(TREE)
    assert (found.races(), found.outside) == ([], [])
    assert found.report() == "no race seen, among 16 work-items"
    assert found.barriers.tolist() == [4] * 16
    accesses = found.global_accesses + found.local_accesses
    assert accesses.max() == 2 + 2 * 3 + 2  # x and part; two parts in each of three steps; part[0] and sums


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;", "work-items 0 and 4 both touch part[4]"),
        ("        }\n        barrier(CLK_LOCAL_MEM_FENCE);\n", "        }\n", "work-items 0 and 1 both touch part[1]"),
        ("if (me == 0) ", "", "work-items 0 and 1 both touch sums[0]"),
        ("sums[get_group_id(0)] = ", "sums[0] = ", "work-items 0 and 8 both touch sums[0]"),
        ("part[me] += part[me + step]", "part[0] += part[me + step]", "both touch part[0]"),
    ],
)
def test_a_race_is_found_without_luck(old, new, sentence):
    for _ in range(3):
        assert any(sentence in race for race in find(changed(old, new)).races())


@pytest.mark.parametrize("add", ["total[0] += x[i]", "total[0] = total[0] + x[i]", "total[0]++", "++total[0]"])
def test_every_way_of_adding_to_one_element_is_a_race(add):
    source = f"__kernel void add_up(__global const int *x, __global int *total) {{ int i = get_global_id(0); {add}; }}"
    found = traced(source, "add_up", 8, 4, [np.ones(8, np.int32), np.zeros(1, np.int32)])
    expected = "work-items 0 and 1 both touch total[0], at least one writes it, and no barrier lies between"
    assert found.races() == [expected]


@pytest.mark.parametrize("total", ["total", "&total[0]"])
def test_atomics_are_no_race_and_neither_is_reading_together(total):
    source = f"""__kernel void add_up(__global const int *x, __global int *total) {{
        if (x[0] > 0 && x[1] > 0) atomic_add({total}, x[get_global_id(0)]);
    }}"""
    found = traced(source, "add_up", 8, 4, [np.ones(8, np.int32), np.zeros(1, np.int32)])
    assert found.races() == []
    assert found.global_accesses.tolist() == [4] * 8


def test_an_atomic_function_does_race_with_a_plain_access():
    source = """__kernel void add_up(__global int *total) {
        if (get_global_id(0) > 0) atomic_inc(total); else total[0] = 0;
    }"""
    assert traced(source, "add_up", 4, 4, [np.ones(1, np.int32)]).races()[0].startswith("work-items 0 and 1 both")


def test_a_barrier_orders_one_group_and_not_two():
    source = """__kernel void pass_on(__global int *x, __global int *out) {
        int i = get_global_id(0);
        x[i] = i;
        barrier(CLK_GLOBAL_MEM_FENCE);
        out[i] = x[SOURCE];
    }"""
    arrays = [np.zeros(8, np.int32), np.zeros(8, np.int32)]
    own = traced(source.replace("SOURCE", "4 * get_group_id(0)"), "pass_on", 8, 4, arrays)
    others = traced(source.replace("SOURCE", "0"), "pass_on", 8, 4, arrays)
    assert own.races() == []
    assert [race[:40] for race in others.races()] == ["work-items 0 and 4 both touch x[0], at l"]


def test_accesses_outside_are_told_and_do_no_harm():
    found = find(changed("i < n ? x[i] : 0", "x[i]"))
    assert found.report().splitlines()[0] == "work-item 14 touches x[14], which does not exist"
    assert len(found.outside) == 2
    local = find(changed("part[me + step]", "part[me + 2 * step]"))
    assert "work-item 0 touches part[8]" in map(str, local.outside)


def test_at_most_three_sentences_are_shown():
    found = find(changed(": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;"))
    assert found.report().splitlines()[-1] == "... and 5 more"


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ("barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("if (i < n) { x[i] = 1; } barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("for (int k = 0; k < 3; k++) { if (i < n) { x[i] = 1; } barrier(CLK_LOCAL_MEM_FENCE); }", ""),
        ("// if (i < n) {\n barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("/* if (i) */ barrier(CLK_LOCAL_MEM_FENCE);", ""),
        ("if (i < n) { x[i] = 1; barrier(CLK_LOCAL_MEM_FENCE); }", "if (i < n)"),
        ("if (i < n)\n        barrier(CLK_LOCAL_MEM_FENCE);", "if (i < n)"),
        ("if (i < n) { x[i] = 1; } else { barrier(CLK_LOCAL_MEM_FENCE); }", "else"),
        ("if (i < n) x[i] = 1; else barrier(CLK_LOCAL_MEM_FENCE);", "else"),
        ("if (i < n) { for (int k = 0; k < 3; k++) { barrier(CLK_LOCAL_MEM_FENCE); } }", "if (i < n)"),
        ("if (i < n) { work_group_barrier(CLK_LOCAL_MEM_FENCE); }", "if (i < n)"),
        ("if (i < n) { { x[i] = 1; } barrier (CLK_LOCAL_MEM_FENCE); }", "if (i < n)"),
    ],
)
def test_a_barrier_in_a_branch_is_seen(body, condition):
    source = f"__kernel void f(__global int *x, int n) {{ int i = 0; {body} }}"
    assert trace.barrier_in_branch(SimpleNamespace(parts=opencl.parse(source, "f"))) == condition


def test_a_barrier_in_a_branch_is_refused_before_it_can_hang_or_crash():
    source = """
__kernel void turn(__global int *x) {
    if (get_local_id(0) < 4) { barrier(CLK_LOCAL_MEM_FENCE); x[0] = 1; }
}"""
    with pytest.raises(WorkshopError, match="A barrier stands under `if"):
        traced(source, "turn", 8, 8, [np.zeros(8, np.int32)])
    same = source.replace("get_local_id(0) < 4", "get_group_id(0) < 4")  # all of the group, or none
    seen = trace.record(opencl.Kernel(same, "turn"), 8, 8, [np.zeros(8, np.int32)], allow_branches=True)
    assert seen.barriers.tolist() == [1] * 8
