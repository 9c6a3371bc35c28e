"""helpers.judge.opencl_recorder on kernels that people write (tests/kernels.toml): no right one is blamed.

The recorder runs no barrier, so a verdict depends little on the driver: all kernels are tried on the usual one, and
those of SHOWN on each. After a change of the recorder, try all of them on each:

    python3 workshop.py test tests/test_kernels.py --all --every-driver
"""

import re
import tomllib
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from helpers.devices import frameworks, opencl
from helpers.errors import WorkshopError
from helpers.judge import opencl_recorder

pytestmark = pytest.mark.usefixtures("one_context")

KERNELS = tomllib.loads(Path(__file__).with_name("kernels.toml").read_text())
TYPES = {
    "int": np.int32,
    "uint": np.uint32,
    "float": np.float32,
    "double": np.float64,
    "half": np.float16,
    "uchar": np.uint8,
    "bytes": np.uint8,
}


def make_argument(text):
    """Return the argument that a text of tests/kernels.toml stands for."""
    if "[" not in text:
        kind, value = text.split()
        return cl.LocalMemory(int(value)) if kind == "local" else TYPES[kind](value)
    kind, length, changed = re.fullmatch(r"(\w+)\[(\d+)\](?:[=<](\d+))?", text).groups()
    numbers = np.arange(int(length))
    if changed is not None:
        numbers = numbers % int(changed) if int(changed) else 0 * numbers
    return numbers.astype(TYPES[kind])


def judge(entry, device=None):
    """Return the kind of fault that a record shows, "" for none."""
    kernel = opencl.Kernel(entry["source"], "k", device)
    arguments = [make_argument(text) for text in entry["arguments"]]
    items = entry.get("global", 64)
    try:
        traced = opencl_recorder.record(kernel, items, entry.get("local", 16), arguments)
    except opencl_recorder.NotJudged as error:
        return f"cannot be judged: {error}"
    except opencl_recorder.Divergence:
        return "barrier"
    except opencl_recorder.NotTraceable as error:
        return "endless" if "does not end" in str(error) else "local"
    faults = {"race": traced.races(), "outside": traced.outside, "unwritten": traced.unwritten()}
    return next((fault for fault, found in faults.items() if found), "")


QUICK = 3  # every third kernel in the quick suite
SHOWN = [  # what drivers may do differently: loops, local memory, atomics, vectors; and each kind of fault
    "reduce_by_modulo",
    "scan_two_buffers",
    "last_group_sums_up",
    "work_list_in_local_memory",
    "complex_butterfly",
    "guard_off_by_one",
    "wrong_fence",
    "sort_across_groups",
    "barrier_in_a_branch",
    "loop_for_ever",
    "accumulator_never_set",
    "too_much_local_memory",
]


def list_names(kind):
    """Return the names of the kernels that are right, or of those that are broken; most are slow."""
    return [
        pytest.param(name, marks=pytest.mark.slow if place % QUICK else ()) for place, name in enumerate(KERNELS[kind])
    ]


@pytest.mark.parametrize("name", list_names("right"))
def test_a_right_kernel_is_never_blamed(name):
    assert judge(KERNELS["right"][name]) == ""


@pytest.mark.parametrize("name", list_names("broken"))
def test_a_broken_kernel_is_named(name):
    assert judge(KERNELS["broken"][name]) == KERNELS["broken"][name]["fault"]


@pytest.mark.slow
@pytest.mark.parametrize("place", frameworks.opencl_devices())
def test_each_driver_gives_the_same_verdicts(place, request):
    device = frameworks.opencl_devices()[place]
    everything = KERNELS["right"] | KERNELS["broken"]
    tried = everything if request.config.getoption("--every-driver") else SHOWN
    found = {name: judge(everything[name], device) for name in tried}
    assert found == {name: everything[name].get("fault", "") for name in tried}


REFUSED = {
    "work_group_reduce_add": "__kernel void k(__global int *x) { x[0] = work_group_reduce_add(x[get_global_id(0)]); }",
    "image": "__kernel void k(__global int *x, read_only image2d_t picture) { x[0] = get_image_width(picture); }",
    "calls itself": "int f(int n) { return n ? n * f(n - 1) : 1; } __kernel void k(__global int *x) { x[0] = f(3); }",
}


@pytest.mark.parametrize("word", REFUSED)
def test_what_is_not_recorded_is_refused_in_words_before_a_launch(word):
    try:
        kernel = opencl.Kernel(REFUSED[word], "k")
    except WorkshopError:
        pytest.skip("this driver does not compile it")
    arguments = [np.zeros(16, np.int32), np.zeros(1, np.int32)][: len(kernel.parameters)]
    with pytest.raises(opencl_recorder.NotJudged, match=f"(?s)cannot be judged.*{word}"):
        opencl_recorder.record(kernel, 16, 16, arguments)


def test_a_launch_that_needs_too_much_memory_is_refused_in_words():
    kernel = opencl.Kernel("__kernel void k(__global int *x) { x[get_global_id(0)] = 1; }", "k")
    with pytest.raises(opencl_recorder.NotJudged, match=r"(?s)cannot be judged.*4,194,304 work-items"):
        opencl_recorder.record(kernel, 1 << 22, 64, [np.zeros(1 << 22, np.int32)])


TAKES = "__kernel void k({parameter}, __global int *y) {{ y[get_global_id(0)] = 1; }}"
FITTING = {
    "__global int *x": (np.zeros(4, np.int32), np.zeros(4, np.uint32), np.zeros((2, 2), np.int32)),
    "__global float4 *x": (np.zeros(16, np.float32), np.zeros(4, cl.cltypes.float4)),
    "__global float2 *x": (np.zeros(4, np.complex64),),
    "__constant uchar *x": (np.zeros(4, np.uint8), np.zeros(4, bool)),
    "__local float *x": (cl.LocalMemory(16),),
    "const int x": (np.int32(4), np.uint32(4)),
    "const float x": (np.float32(4),),
}
UNFIT = {
    "__global int *x": (np.arange(4), np.zeros(4, np.float32), np.int32(4), cl.LocalMemory(16)),
    "__global const float *x": (np.zeros(4), np.zeros(4, np.int32), 4.0),
    "__global float4 *x": (np.zeros(4),),
    "__local float *x": (np.zeros(4, np.float32), np.int32(16)),
    "const int x": (np.int64(4), np.float32(4), np.int16(4), 4, np.zeros(1, np.int32)),
    "const float x": (np.float64(4), np.int32(4)),
}


@pytest.mark.parametrize(
    ("parameter", "argument"), [(parameter, each) for parameter, given in FITTING.items() for each in given]
)
def test_an_argument_of_the_right_type_is_taken(parameter, argument):
    kernel = opencl.Kernel(TAKES.format(parameter=parameter), "k")
    assert opencl_recorder.record(kernel, 4, 4, [argument, np.zeros(4, np.int32)]).races() == []


@pytest.mark.parametrize(
    ("parameter", "argument"), [(parameter, each) for parameter, given in UNFIT.items() for each in given]
)
def test_an_argument_of_the_wrong_type_or_size_is_refused_before_a_launch(parameter, argument):
    kernel = opencl.Kernel(TAKES.format(parameter=parameter), "k")
    with pytest.raises(WorkshopError, match=f"`{re.escape(parameter)}` cannot take"):
        opencl_recorder.record(kernel, 4, 4, [argument, np.zeros(4, np.int32)])
