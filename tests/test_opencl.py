"""helpers.opencl: the device, readable errors, and the trace of the learner's own kernel, on real OpenCL."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import devices, opencl
from helpers.errors import WorkshopError

ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
    int i = get_global_id(0);  // not a[i], and not "c[99]"
    c[i] = a[i] + b[i];
}
"""


@pytest.fixture(scope="module")
def device():
    return opencl.pick_device()


@pytest.fixture(scope="module")
def context(device):
    return cl.Context([device])


def python(code, **variables):
    """Run Python code in a process of its own, where the environment can still change what OpenCL finds."""
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )


PICK = """
from helpers import errors, opencl
try:
    print(opencl.name(opencl.pick_device()))
except errors.WorkshopError as error:
    print(error)
"""


def test_the_device_that_is_picked_compiles_and_runs(device):
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    out = np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=4)
    cl.Kernel(opencl.build(context, devices.SMALLEST_KERNEL), "smallest")(queue, (1,), None, buffer)
    cl.enqueue_copy(queue, out, buffer)
    assert out[0] == 1


def test_the_name_has_device_runtime_and_kind(device):
    assert opencl.name(device).endswith(f", OpenCL, {opencl.kind(device).upper()})")
    assert "pthread" not in opencl.name(device)


def test_no_platform_gives_a_message_and_a_next_step():
    said = python(PICK, OCL_ICD_VENDORS="/nonexistent-folder", PYOPENCL_CTX="")
    assert "There is no OpenCL device here." in said.stdout
    assert "Next:" in said.stdout
    assert said.stderr == ""


def test_a_device_number_that_does_not_exist_gives_a_message():
    said = python(PICK, PYOPENCL_CTX="97:3")
    assert "PYOPENCL_CTX=97:3 names no device here." in said.stdout
    assert "Traceback" not in said.stdout + said.stderr


def test_pyopencl_ctx_is_honoured():
    for number, platform in enumerate(cl.get_platforms()):
        said = python(PICK, PYOPENCL_CTX=str(number)).stdout
        only = platform.get_devices()[0]
        assert opencl.name(only) in said
        assert said.startswith("No OpenCL device here can compile") == bool(devices.compile_problem(only))


def test_a_build_error_shows_the_line_and_what_is_wrong(context):
    before = set(Path(tempfile.gettempdir()).glob("*.cl"))
    with pytest.raises(opencl.KernelError) as caught:
        opencl.build(context, ADD.replace("b[i];", "d[i];"))
    assert "line 4" in caught.value.why
    assert "c[i] = a[i] + d[i];" in caught.value.why
    assert "'d'" in caught.value.why
    assert "/" not in caught.value.why  # no path of a temporary file
    assert set(Path(tempfile.gettempdir()).glob("*.cl")) == before


def test_a_build_error_writes_nothing_to_standard_error(context, capfd):
    with pytest.raises(opencl.KernelError):
        opencl.build(context, "__kernel void broken(")
    assert capfd.readouterr().err == ""


LOGS = {  # as these compilers write them
    "PoCL": "error: /home/me/.cache/pocl/kcache/tempfile_dxtVlb.cl:4:19: use of undeclared identifier 'd'",
    "Intel": "1:4:19: error: use of undeclared identifier 'd'\n    4 |   c[i] = a[i] + d[i];\n      |     ^",
    "NVIDIA": "<kernel>:4:19: error: use of undeclared identifier 'd'",
    "Apple": "<program source>:4:19: error: use of undeclared identifier 'd'",
    "AMD": "/tmp/comgr-52/input/CompileSource:4:19: error: use of undeclared identifier 'd'\n1 error generated.",
}


@pytest.mark.parametrize("compiler", LOGS)
def test_the_logs_of_all_compilers_are_read(compiler):
    _, why, _ = opencl.readable_log(ADD, LOGS[compiler])
    assert why.splitlines()[0] == "line 4: use of undeclared identifier 'd'"
    assert "c[i] = a[i] + b[i];" in why.splitlines()[1]
    assert why.splitlines()[2].index("^") == 4 + 18


def test_warnings_are_not_errors():
    _, why, _ = opencl.readable_log(ADD, "<kernel>:3:1: warning: unused\n" + LOGS["NVIDIA"])
    assert "unused" not in why


def test_a_compiler_that_fails_as_a_whole_says_so():
    what, why, _ = opencl.readable_log(ADD, "clBuildProgram failed\n\nerror: unknown target CPU 'generic'\nDevice x")
    assert what == "The compiler of this device failed."
    assert why == "error: unknown target CPU 'generic'"


def floats(n):
    return np.arange(n, dtype=np.float32)


def test_the_trace_has_ids_and_touches(device):
    trace = opencl.trace(ADD, "add", (12,), (4,), [floats(10), floats(10), floats(10)], device)
    assert trace.global_ids[:, 0].tolist() == list(range(12))
    assert trace.local_ids[:, 0].tolist() == [0, 1, 2, 3] * 3
    assert trace.group_ids[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert trace.counts.tolist() == [3] * 12
    assert [(t.array, t.index, t.reads, t.writes) for t in trace.touches if t.item == 5] in (
        [("a", 5, True, False), ("b", 5, True, False), ("c", 5, False, True)],
        [("c", 5, False, True), ("a", 5, True, False), ("b", 5, True, False)],
    )
    assert {(t.item, t.array) for t in trace.outside} == {(i, array) for i in (10, 11) for array in "abc"}


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
def test_reads_and_writes_are_told_apart(device, statement, expected):
    source = f"__kernel void k(__global const int *a, __global int *c) {{ int i = get_global_id(0); {statement} }}"
    a = np.array([2, 1, 0, 3], np.int32)
    trace = opencl.trace(source, "k", (4,), (2,), [a, a.copy()], device)
    assert {(t.array, t.reads, t.writes) for t in trace.touches} <= expected
    assert {t.array for t in trace.touches if t.item == 1} == {array for array, _, _ in expected}


def test_an_index_from_an_array_is_followed(device):
    source = "__kernel void gather(__global const int *at, __global const float *x, __global float *out) {\n"
    source += "    out[get_global_id(0)] = x[at[get_global_id(0)]];\n}"
    trace = opencl.trace(
        source, "gather", (4,), (4,), [np.array([3, 2, 9, -1], np.int32), floats(4), floats(4)], device
    )
    assert [t.index for t in trace.touches if t.array == "x"] == [3, 2, 9, -1]
    assert [t.index for t in trace.outside] == [9, -1]


def test_two_dimensions(device):
    source = """__kernel void t(__global const float *a, __global float *c, const int w, const int h) {
        int x = get_global_id(0), y = get_global_id(1);
        c[x * h + y] = a[y * w + x]; }"""
    trace = opencl.trace(source, "t", (4, 2), (2, 2), [floats(8), floats(8), np.int32(4), np.int32(2)], device)
    assert trace.global_ids[5].tolist() == [1, 1, 0]
    assert [t.index for t in trace.touches if t.item == 5 and t.array == "a"] == [5]
    assert [t.index for t in trace.touches if t.item == 5 and t.array == "c"] == [3]


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


def test_accesses_to_global_and_to_local_memory_are_counted(device):
    """n = 8 in tiles of 4: two reads a tile and one result; in local memory two writes and 3 x 4 reads a tile."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 64), dtype=np.float32)
    trace = opencl.trace(TILED, "product", (8, 8), (4, 4), [a, b, floats(64), np.int32(8)], device)
    assert trace.counts.tolist() == [2 * 2 + 1] * 64
    assert trace.local_counts.tolist() == [1 + 2 * (2 + 3 * 4)] * 64
    assert trace.bytes_asked.tolist() == [4 * (2 * 2 + 1)] * 64
    assert trace.outside == []
    plain = opencl.trace(ADD, "add", (4,), (4,), [floats(4)] * 3, device)
    assert plain.local_counts.tolist() == [0] * 4


def test_counting_changes_no_result(device):
    import pyopencl as cl

    rng = np.random.default_rng(0)
    a, b = rng.random((2, 8, 8), dtype=np.float32)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    source, _ = opencl.instrument(TILED, "product")
    flags, c = cl.mem_flags, np.zeros((8, 8), np.float32)
    inputs = [cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array) for array in (a, b, c)]
    log = cl.Buffer(context, flags.READ_WRITE, 64 * 4 * (opencl.HEADER + 2 * opencl.MAX_TOUCHES))
    kernel = cl.Kernel(opencl.build(context, source), "product")
    kernel(queue, (8, 8), (4, 4), *inputs, np.int32(8), log, *[np.int32(256)] * 3)
    cl.enqueue_copy(queue, c, inputs[2])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_a_vector_is_one_element(device):
    source = "__kernel void twice(__global const float4 *x, __global float4 *y) {\n\
        int i = get_global_id(0); y[i] = 2.0f * x[i + 1]; }"
    trace = opencl.trace(source, "twice", (4,), (2,), [floats(16), floats(16)], device)
    assert trace.lengths == {"x": 4, "y": 4}
    assert trace.counts.tolist() == [2] * 4
    assert [(touch.item, touch.index) for touch in trace.outside] == [(3, 4)]


def test_more_touches_than_are_listed_are_still_counted(device):
    source = "__kernel void many(__global float *x, const int n) { for (int i = 0; i < n; i++) x[i % 4] += 1.0f; }"
    trace = opencl.trace(source, "many", (1,), (1,), [floats(4), np.int32(100)], device)
    assert trace.counts.tolist() == [100]
    assert len(trace.touches) == opencl.MAX_TOUCHES


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]), st.integers(-3, 3))
def test_exactly_the_work_items_beyond_the_end_are_outside(n, group, shift):
    source = f"__kernel void k(__global const float *x, __global float *out, const int n) {{\n\
        int i = get_global_id(0); if (i < n) out[i] = x[i + ({shift})]; }}"
    size = -(-n // group) * group
    trace = opencl.trace(source, "k", (size,), (group,), [floats(n), floats(n), np.int32(n)])
    assert {t.item for t in trace.outside} == {i for i in range(n) if not 0 <= i + shift < n}


def test_a_wrong_name_and_wrong_arguments_give_messages(device):
    with pytest.raises(WorkshopError, match="no kernel called 'sub'"):
        opencl.trace(ADD, "sub", (4,), (4,), [floats(4)] * 3, device)
    for sizes in [((10,), (4,)), ((12,), None), ((4, 4), (4,)), ((0,), (4,)), (10, 4)]:
        with pytest.raises(WorkshopError, match="must be a multiple of the work-group"):
            opencl.trace(ADD, "add", *sizes, [floats(4)] * 3, device)
    for argument in (10, 1.5, [1.0], np.int32(4)):
        with pytest.raises(WorkshopError, match="`__global const float \\*a` cannot take"):
            opencl.trace(ADD, "add", 4, 4, [argument, floats(4), floats(4)], device)
    with pytest.raises(WorkshopError, match="takes 3 arguments, 2 were given"):
        opencl.trace(ADD, "add", (4,), (4,), [floats(4)] * 2, device)
    with pytest.raises(opencl.KernelError, match="does not compile"):
        opencl.trace(ADD.replace("b[i];\n}", "b[i];\n"), "add", (4,), (4,), [floats(4)] * 3, device)
    with pytest.raises(opencl.KernelError, match="line 4"):
        opencl.trace(ADD.replace("b[i];", "d[i];"), "add", (4,), (4,), [floats(4)] * 3, device)
