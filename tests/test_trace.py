"""helpers.judge.opencl_recorder: who touched what, on real OpenCL; races are found whatever one run returns."""

import contextlib
import functools

import numpy as np
import pytest

from helpers.devices import frameworks, opencl
from helpers.devices.kernel_text import KernelError
from helpers.errors import WorkshopError
from helpers.judge import opencl_log, opencl_recorder

pytestmark = pytest.mark.usefixtures("one_context")

ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
    int i = get_global_id(0);  // not a[i], and not "c[99]"
    c[i] = a[i] + b[i];
}
"""


def traced(source, name, global_size, local_size, arguments):
    device = device_with_opencl_2() if "work_group_barrier" in source else None
    return opencl_recorder.record(opencl.Kernel(source, name, device), global_size, local_size, arguments)


@functools.cache
def device_with_opencl_2():
    """A device whose compiler knows OpenCL C 2.0."""
    source = "__kernel void f(void) { work_group_barrier(CLK_LOCAL_MEM_FENCE); }"
    for device in frameworks.opencl_devices().values():
        with contextlib.suppress(KernelError):
            opencl.Kernel(source, "f", device)
            return device
    pytest.skip("no compiler here knows work_group_barrier")


def floats(n):
    return np.arange(n, dtype=np.float32)


def test_the_trace_has_ids_and_touches():
    record = traced(ADD, "add", (12,), (4,), [floats(10), floats(10), floats(10)])
    assert record.global_ids[:, 0].tolist() == list(range(12))
    assert record.local_ids[:, 0].tolist() == [0, 1, 2, 3] * 3
    assert record.group_ids[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert record.global_accesses.tolist() == [3] * 12
    assert [(t.array, t.index, t.reads, t.writes) for t in record.touches if t.item == 5] in (
        [("a", 5, True, False), ("b", 5, True, False), ("c", 5, False, True)],
        [("c", 5, False, True), ("a", 5, True, False), ("b", 5, True, False)],
    )
    assert {(t.item, t.array) for t in record.outside} == {(i, array) for i in (10, 11) for array in "abc"}


def test_what_is_far_outside_is_told_of_the_array_that_the_kernel_names():
    """Wherever the driver puts the arrays: the last index of 32 bits is as far from each of them."""
    source = ADD.replace("int i", "uint i").replace("a[i] + b[i]", "a[i - 1] + b[i - 1]")
    record = traced(source, "add", (4,), (4,), [floats(4), floats(4), floats(4)])
    assert sorted((t.array, t.index) for t in record.outside) == [("a", 2**32 - 1), ("b", 2**32 - 1)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("c[i] += a[i];", {("c", True, True), ("a", True, False)}),
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
    record = traced(source, "k", (4,), (2,), [a, a.copy()])
    assert {(t.array, t.reads, t.writes) for t in record.touches} <= expected
    assert {t.array for t in record.touches if t.item == 1} == {array for array, _, _ in expected}


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
    record = traced(TILED, "product", (8, 8), (4, 4), [a, b, floats(64), np.int32(8)])
    assert record.global_accesses.tolist() == [2 * 2 + 1] * 64
    assert sum(touch.array not in record.lengths for touch in record.touches) == 64 * (1 + 2 * (2 + 3 * 4))
    assert record.outside == []


def test_a_vector_is_one_element():
    source = "__kernel void twice(__global const float4 *x, __global float4 *y) {\n\
        int i = get_global_id(0); y[i] = 2.0f * x[i + 1]; }"
    record = traced(source, "twice", (4,), (2,), [floats(16), floats(16)])
    assert record.lengths == {"x": 4, "y": 4}
    assert record.global_accesses.tolist() == [2] * 4
    assert [(touch.item, touch.index) for touch in record.outside] == [(3, 4)]


def test_wrong_sizes_and_arguments_give_messages():
    for sizes in [((12,), None), ((4, 4), (4,)), ((0,), (4,)), (10, 4), (np.int64(10), np.int64(4))]:
        with pytest.raises(WorkshopError, match="must be a multiple of the work-group"):
            traced(ADD, "add", *sizes, [floats(4)] * 3)
    for argument in (10, np.int32(4)):
        with pytest.raises(WorkshopError, match="`__global const float \\*a` cannot take"):
            traced(ADD, "add", 4, 4, [argument, floats(4), floats(4)])
    with pytest.raises(WorkshopError, match="takes 3 arguments, 2 were given"):
        traced(ADD, "add", (4,), (4,), [floats(4)] * 2)


@pytest.mark.parametrize(
    ("before", "body", "touched"),
    [
        ("", "part[i] = x[i]; tile[i][1] = part[i];", {("x", 2), ("part", 2), ("tile", 5)}),
        ("", "atomic_add(&out[0], x[i]); atom_inc(out);", {("out", 0), ("x", 2)}),
        ("", "atomic_max((__global int *)&out[1], 3);", {("out", 1)}),
        ("", "out[i] = *(x + i + 1);", {("x", 3), ("out", 2)}),
        ("", "out[i] = vload2(1, x + i).x;", {("x", 4), ("x", 5), ("out", 2)}),
        ("", "vstore2((int2)(x[1], 1), i, out);", {("x", 1), ("out", 4), ("out", 5)}),
        ("", "int own[4]; vstore4((int4)(i), 0, own); out[i] = vload2(1, own).x + own[3];", {("out", 2)}),
        ("", "if (i) { __global const int *p = &x[i]; out[i] = *p; }", {("x", 2), ("out", 2)}),
        ("int f(__global const int *p) { return p[1]; }", "out[i] = f(x + i);", {("x", 3), ("out", 2)}),
        ("int f(void) { return 3; }", "out[f()] = 1;", {("out", 3)}),
        ("", "__local int *p = tile[i]; p[1] = 1;", {("tile", 5)}),
        ("", "total = x[i];", {("x", 2), ("total", 0)}),
        ("", "__global int4 *q = (__global int4 *)out; q[1].x = 2;", {("out", k) for k in (4, 5, 6, 7)}),
        ("#define WAIT barrier(CLK_LOCAL_MEM_FENCE)", "part[i] = 1; WAIT; i = part[3];", {("part", 2), ("part", 3)}),
        ("#define AT(k) x[k]", "out[i] = AT(i);", {("x", 2), ("out", 2)}),
        ("#define AT(k) *(x + (k))", "out[i] = AT(i + 1);", {("x", 3), ("out", 2)}),
        ("#define LESS(a, b) ((a) < (b) ? (a) : (b))", "out[i] = LESS(x[i], x[3]);", {("x", 2), ("x", 3), ("out", 2)}),
        ("#define EACH(k, n) for (int k = 0; k < n; k++)", "EACH(k, 2) { out[k] = 1; }", {("out", 0), ("out", 1)}),
        ("#define F f(x)\nint f(__global const int *p) { return p[0]; }", "out[i] = F;", {("x", 0), ("out", 2)}),
        ("", "__global const int *p = x + i; out[i] = *p++ + *p;", {("x", 2), ("x", 3), ("out", 2)}),
        ("", "float v = vload_half(0, (__global half *)(x + i));", {("x", 2)}),
        ("", "float rest = modf(1.5f, (__global float *)(out + i));", {("out", 2)}),
        ("int f(__global const int *);\nint f(__global const int *p) { return *p; }", "f(x + i);", {("x", 2)}),
        ("", "for (int k = 0; k < 1; k++) { if (k) goto end; out[i] = 1; } end: ;", {("out", 2)}),
        ("#define AT(k) (2 * (k))", "out[AT(1)] = x[AT(i)];", {("out", 2), ("x", 4)}),
        ("constant int table[2] = {1, 2};", "out[i] = table[1] + sizeof(x[99]);", {("out", 2)}),
        ("", "for (int k = 0; k < 1; k++) for (int m = 0; m < 1; m++) out[k] = x[m];", {("out", 0), ("x", 0)}),
        ("", "for (int k = 0; k < 1; k++)\n#pragma unroll\nfor (int m = 0; m < 1; m++) out[k] = 2;", {("out", 0)}),
        ("", "int k = 0; do out[k] = 1; while (++k < 1); while (k < 4) if (k) k++; else { k = 9; }", {("out", 0)}),
    ],
)
def test_every_way_to_memory_is_followed(before, body, touched):
    record = traced(KINDS % (before, body), "k", 8, 8, [np.zeros(16, np.int32), np.zeros(16, np.int32)])
    assert record.unseen == [] and record.outside == []
    assert {(touch.array, touch.index) for touch in record.touches if touch.item == 2} == touched


KINDS = """%s
__kernel void k(__global const int *x, __global int *out) {
    __local int part[8], tile[8][2], total;
    int i = get_global_id(0);
    %s
}"""


@pytest.mark.parametrize(
    ("before", "body", "unseen"),
    [
        (
            "",
            "event_t e = async_work_group_copy(part, x, 3, 0); wait_group_events(1, &e); out[i] = part[2];",
            ["line 5: `async_work_group_copy(part, x, 3, 0)`"],
        ),
    ],
)
def test_what_cannot_be_followed_is_told(before, body, unseen):
    record = traced(KINDS % (before, body), "k", 8, 8, [np.zeros(8, np.int32), np.zeros(8, np.int32)])
    assert record.unseen == unseen
    assert record.report().count("not followed: ") == len(unseen)
    assert record.unwritten() == []  # who wrote it may be what was not followed


def test_more_touches_than_are_listed_are_still_counted():
    source = "__kernel void many(__global float *x, const int n) { for (int i = 0; i < n; i++) x[i % 4] += 1.0f; }"
    assert traced(source, "many", (1,), (1,), [floats(4), np.int32(opencl_log.MAX_TOUCHES)]).unseen == []
    record = traced(source, "many", (1,), (1,), [floats(4), np.int32(500)])
    assert record.global_accesses.tolist() == [500]
    assert len(record.touches) == opencl_log.MAX_TOUCHES
    assert record.unseen == [
        f"what a work-item touches after its first {opencl_log.MAX_TOUCHES} accesses is only counted"
    ]


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


def test_a_right_kernel_has_no_race():
    found = find(TREE)
    assert (found.races(), found.outside) == ([], [])
    assert found.report() == "no race seen in x, sums, part, among 16 work-items"


def test_the_barriers_that_each_work_item_meets_are_counted():
    assert find(TREE).barriers.tolist() == [4] * 16


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;", "work-items 0 and 4 both touch part[4]"),
        ("        }\n        barrier(CLK_LOCAL_MEM_FENCE);\n", "        }\n", "work-items 0 and 1 both touch part[1]"),
        ("if (me == 0) ", "", "work-items 0 and 1 both write sums[0]"),
        ("sums[get_group_id(0)] = ", "sums[0] = ", "work-items 0 and 8 both write sums[0]"),
        ("part[me] += part[me + step]", "part[0] += part[me + step]", "both write part[0]"),
    ],
)
def test_a_race_is_found_without_luck(old, new, sentence):
    for _ in range(3):
        assert any(sentence in race for race in find(changed(old, new)).races())


@pytest.mark.parametrize("total", ["total", "&total[0]"])
def test_atomic_functions_and_plain_reads_do_not_race(total):
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
    assert [race[:40] for race in others.races()] == ["work-items 0 and 4 both touch x[0], one "]


def test_a_report_shows_three_races():
    all_race = find(changed(": 0;\n    barrier(CLK_LOCAL_MEM_FENCE);", ": 0;"))
    assert all_race.report().splitlines()[-1] == "... and 5 more"


def test_accesses_outside_are_recorded_and_do_no_harm():
    found = find(changed("i < n ? x[i] : 0", "x[i]"))
    assert found.report().splitlines()[0] == "work-item 14 touches x[14], which does not exist"
    assert len(found.outside) == 2
    local = find(changed("part[me + step]", "part[me + 2 * step]"))
    assert "work-item 0 touches part[8]" in map(str, local.outside)


BARRIERS = """
__kernel void f(__global int *x, const int n) {
    int i = get_global_id(0), me = get_local_id(0);
    %s
}
"""
WAIT = "barrier(CLK_LOCAL_MEM_FENCE);"


@pytest.mark.parametrize(
    "body",
    [
        f"for (int k = 0; k < 3; k++) {{ if (i < n) {{ x[i] = 1; }} {WAIT} }}",
        f"if (get_group_id(0) == 0) {{ {WAIT} }}",
        f"for (int step = 2; step > 0; step /= 2) {{ if (step > 1) {{ {WAIT} }} }}",
        "work_group_barrier(CLK_LOCAL_MEM_FENCE);",
    ],
)
def test_a_barrier_that_all_of_a_group_meet_is_accepted(body):
    assert traced(BARRIERS % body, "f", 8, 4, [np.zeros(8, np.int32), np.int32(6)]).outside == []


@pytest.mark.parametrize(
    "body",
    [
        f"if (i < n)\n        {WAIT}",
        f"if (i < n) {{ for (int k = 0; k < 3; k++) {{ {WAIT} }} }}",
        "if (i < n) { work_group_barrier(CLK_LOCAL_MEM_FENCE); }",
        f"if (i >= n) return; {WAIT}",
        f"for (int k = 0; k < me; k++) {{ {WAIT} }}",
        f"if (me < 2) {{ {WAIT} }} else {{ {WAIT} }}",  # each meets one, but not the same one
        f"for (int k = 0; k < 9; k++) {WAIT} if (me < 2) {{ {WAIT} }} else {{ {WAIT} }}",  # more than are listed
    ],
)
def test_barriers_that_not_all_of_a_group_meet_are_refused_before_they_can_hang_or_crash(body):
    with pytest.raises(opencl_recorder.NotTraceable, match=r"(?s)meet the same barriers.*line [45], `"):
        traced(BARRIERS % body, "f", 8, 4, [np.zeros(8, np.int32), np.int32(6)])


@pytest.mark.parametrize("body", ["while (i < 9) { x[0] = 1; }", "for (;;);", "do i--; while (me > -1);"])
def test_a_loop_without_end_is_refused(body):
    with pytest.raises(opencl_recorder.NotTraceable, match=r"(?s)does not end.*line 4, `"):
        traced(BARRIERS % body, "f", 8, 4, [np.zeros(8, np.int32), np.int32(6)])


@pytest.mark.parametrize("flags", ["0", "CLK_GLOBAL_MEM_FENCE"])
def test_a_barrier_without_the_fence_for_local_memory_orders_none(flags):
    assert "part[4]" in find(TREE.replace("CLK_LOCAL_MEM_FENCE", flags)).races()[0]
    assert find(TREE.replace("CLK_LOCAL_MEM_FENCE", "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE")).races() == []


def test_local_memory_that_nobody_has_written_is_told():
    found = find(changed("part[me] = i < n ? x[i] : 0;", "if (i < n) { part[me] = x[i]; }"))
    assert found.unwritten() == [
        f"work-item {item} reads part[{k}], which nobody has written before" for item, k in ((10, 6), (11, 7))
    ]
    assert find(TREE).unwritten() == []
