"""helpers.devices.opencl: the device, readable errors, and what is known of a learner's kernel, on real OpenCL."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from helpers import devices
from helpers.devices import compiler_log, frameworks, host, opencl
from helpers.devices.device import LOOP_FAULT, RIGHT
from helpers.devices.kernel_text import KernelError

ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
    int i = get_global_id(0);  // not a[i], and not "c[99]"
    c[i] = a[i] + b[i];
}
"""


@pytest.fixture(scope="module")
def device():
    return opencl.pick_device()


def python(code, **variables):
    """Run Python code in a process of its own, where the environment can still change what OpenCL finds."""
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )


PICK = """
from helpers import errors
from helpers.devices import opencl
try:
    print(opencl.name(opencl.pick_device()))
except errors.WorkshopError as error:
    print(error)
"""


def test_the_name_has_device_runtime_and_kind(device):
    assert opencl.name(device).endswith(f", OpenCL, {opencl.kind(device).upper()})")
    assert "pthread" not in opencl.name(device)


def test_no_platform_gives_a_message_and_a_next_step():
    done = python(PICK, OCL_ICD_VENDORS="/nonexistent-folder", PYOPENCL_CTX="")
    assert "There is no OpenCL device here." in done.stdout
    assert "Next:" in done.stdout
    assert done.stderr == ""


def test_a_device_number_that_does_not_exist_gives_a_message():
    done = python(PICK, PYOPENCL_CTX="97:3")
    assert "PYOPENCL_CTX=97:3 names no device here." in done.stdout
    assert host.command(host.Host.here(), "devices") in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_pyopencl_ctx_is_honored():
    for number, platform in enumerate(cl.get_platforms()):
        printed = python(PICK, PYOPENCL_CTX=str(number)).stdout
        only = platform.get_devices()[0]
        assert opencl.name(only) in printed
        assert printed.startswith("No OpenCL device here can compile") == bool(opencl.find_problem(only))


def test_a_gpu_whose_driver_ends_the_process_is_passed_over_here_and_in_what_is_started(device, monkeypatch):
    """A real device that passes for a GPU; what a process of its own told of it is a fake."""
    described = dataclasses.replace(frameworks.describe_opencl(device), kind="gpu")
    places = [place for place, other in frameworks.opencl_devices().items() if other == device]
    told = dataclasses.replace(described, identifier=places[0], computes="failed: was ended by SIGABRT")
    asked = []
    monkeypatch.setattr(frameworks, "describe_opencl", lambda device, identifier="": described)
    monkeypatch.setattr(
        opencl.devices, "ask", lambda name: asked.append(name) or devices.Answer(name, "ok", "", (told,))
    )
    monkeypatch.setenv(opencl.PROOFS, "")  # so that it is put back at the end
    monkeypatch.delenv(opencl.PROOFS)
    opencl.prove.cache_clear()
    assert "SIGABRT" in opencl.find_problem(device)
    opencl.prove.cache_clear()  # as in a process that was started by this one
    assert "SIGABRT" in opencl.find_problem(device) and asked == ["opencl"]
    opencl.prove.cache_clear()


def test_a_device_multiplies_once_for_this_process_and_those_that_it_starts(device, monkeypatch):
    monkeypatch.setenv(opencl.PROOFS, "{}")
    opencl.prove.cache_clear()
    assert opencl.find_problem(device) == ""
    opencl.prove.cache_clear()  # as in a process that was started by this one
    monkeypatch.setattr(opencl.products, "prove", lambda device: pytest.fail("it was let multiply again"))
    assert opencl.find_problem(device) == ""


def test_a_work_group_barrier_compiles_where_a_device_knows_opencl_c_3():
    source = "__kernel void f(__global int *x) { work_group_barrier(CLK_LOCAL_MEM_FENCE); x[0] = 1; }"
    for device in frameworks.opencl_devices().values():
        if opencl._knows_opencl_c_3(device) and not opencl.find_problem(device):
            assert opencl.build(cl.Context([device]), source).all_kernels()
            with pytest.raises(KernelError) as caught:
                opencl.build(cl.Context([device]), source.replace("x[0]", "y[0]"))
            assert "'y'" in caught.value.why


def test_a_driver_that_compiles_a_loop_wrongly_comes_last_of_its_kind(device, monkeypatch):
    """Real devices; what they compute is a fake."""
    others = [other for other in frameworks.opencl_devices().values() if opencl.kind(other) == opencl.kind(device)]
    if len(others) < 2:
        pytest.skip("a single device of this kind")
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    first = opencl._list_candidates()[0]
    monkeypatch.setattr(opencl, "prove", lambda device: LOOP_FAULT if device == first else RIGHT)
    assert opencl.pick_device() != first and opencl.kind(opencl.pick_device()) == opencl.kind(first)
    monkeypatch.setattr(opencl, "prove", lambda device: LOOP_FAULT)
    assert opencl.pick_device() == first


def test_a_build_error_shows_the_line_and_what_is_wrong(device, capfd):
    before = set(Path(tempfile.gettempdir()).glob("*.cl"))
    with pytest.raises(KernelError) as caught:
        opencl.build(cl.Context([device]), ADD.replace("b[i];", "d[i];"))
    assert "line 4" in caught.value.why
    assert "c[i] = a[i] + d[i];" in caught.value.why
    assert "'d'" in caught.value.why
    assert "/" not in caught.value.why  # no path of a temporary file
    assert capfd.readouterr().err == ""
    assert set(Path(tempfile.gettempdir()).glob("*.cl")) == before


LOGS = {  # as these compilers write them
    "PoCL": "error: /home/me/.cache/pocl/kcache/tempfile_dxtVlb.cl:4:19: use of undeclared identifier 'd'",
    "Intel": "1:4:19: error: use of undeclared identifier 'd'\n    4 |   c[i] = a[i] + d[i];\n      |     ^",
    "NVIDIA": "<kernel>:4:19: error: use of undeclared identifier 'd'",
    "Apple": "<program source>:4:19: error: use of undeclared identifier 'd'",
    "AMD": "/tmp/comgr-52/input/CompileSource:4:19: error: use of undeclared identifier 'd'\n1 error generated.",
}


@pytest.mark.parametrize("compiler", LOGS)
def test_the_logs_of_all_compilers_are_read(compiler):
    _, why = compiler_log.explain_log(ADD, LOGS[compiler])
    assert why.splitlines()[0] == "line 4: use of undeclared identifier 'd'"
    assert "c[i] = a[i] + b[i];" in why.splitlines()[1]
    assert why.splitlines()[2].index("^") == 4 + 18


def test_a_complaint_about_an_empty_source_is_shown():
    assert compiler_log.explain_log("", "<kernel>:1:1: error: no kernel")[1].startswith("line 1: no kernel")


def test_a_compiler_that_fails_as_a_whole_leads_to_the_doctor():
    log = "clBuildProgram failed\n\nerror: unknown target CPU 'generic'\nDevice x"
    error = opencl.explain_failure(ADD, log)
    assert "doctor" in error.next and error.why == "error: unknown target CPU 'generic'"


BODY = "__kernel void f(__global float *x) {{\n    int i = get_global_id(0);\n    {};\n}}\n"
WRONG_KERNELS = {  # what a learner wrote in the body's third line, or before it; the line and a word of the complaint
    "a float and an int": (BODY.format("x[i] = max(x[i], 0)"), 3, "'max'"),
    "clamp to whole numbers": (BODY.format("x[i] = clamp(x[i], 0, 1)"), 3, "'clamp'"),
    "a root of an int": (BODY.format("x[i] = sqrt(i)"), 3, "'sqrt'"),
    "a power of two ints": (BODY.format("x[i] = pow(2, i)"), 3, "'pow'"),
    "an argument missing": (BODY.format("x[i] = max(x[i])"), 3, "'max'"),
    "a product of one vector": (BODY.format("x[i] = dot(x[i])"), 3, "'dot'"),
    "an atomic sum of floats": (BODY.format("atomic_add(&x[i], x[i])"), 3, "'atomic_add'"),
    "a barrier without a fence": (BODY.format("barrier()"), 3, "too few arguments"),
    "a conversion to a vector": (BODY.format("x[i] = convert_float4(x[i]).x"), 3, "'convert_float4'"),
    "the bits of a pointer": (BODY.format("x[i] = as_float(x)"), 3, "reinterpretation"),
    "a function of the same name": (
        f"float max(float a, float b) {{ return a; }}\n{BODY.format('x[i] = 0')}",
        1,
        "'max'",
    ),
    "a macro that names nothing": (
        f"#define TWICE(a) (2 * b)\n{BODY.format('x[i] = TWICE(x[i])')}",
        4,
        "TWICE, line 1",
    ),
    "a macro in a macro": (
        f"#define ADD(a) (b + a)\n#define TWICE(a) (2 * ADD(a))\n{BODY.format('x[i] = TWICE(x[i])')}",
        5,
        "ADD, line 1",
    ),
    "a constant with a semicolon": (f"#define N 8;\n{BODY.format('if (i < N) x[i] = 1')}", 4, "N, line 1"),
    "a macro of several lines": (
        f"#define ZERO(a) do {{ \\\n        a = zero; \\\n    }} while (0)\n{BODY.format('ZERO(x[i])')}",
        6,
        "ZERO, line 2",
    ),
    "a header of C": (f"// mine\n#include <math.h>\n{BODY.format('x[i] = 1')}", 2, "not found"),
    "a function without a body": (
        f"// half(x)\nfloat half_of(float x);\n{BODY.format('x[i] = half_of(x[i])')}",
        2,
        "body",
    ),
    "a warning before the error": (BODY.format("float4 v = (1, 2, 3, 4); x[i] = v.q"), 3, "'q'"),
}


# Mesa 22.3 has the functions for floats alone, and lets a kernel have a function of a built-in's name.
COMPILED_BY_RUSTICL = {"a root of an int", "a power of two ints", "a function of the same name"}


@pytest.mark.parametrize("driver", frameworks.opencl_devices())
@pytest.mark.parametrize("mistake", WRONG_KERNELS)
def test_every_driver_names_the_line_of_a_mistake_in_a_built_in_or_a_macro(driver, mistake):
    source, line, words = WRONG_KERNELS[mistake]
    driver = frameworks.opencl_devices()[driver]
    if opencl.find_problem(driver):
        pytest.skip("this driver compiles nothing here")
    if driver.platform.name == "rusticl" and mistake in COMPILED_BY_RUSTICL:
        pytest.skip("this driver compiles it")
    with pytest.raises(KernelError) as caught:
        opencl.build(cl.Context([driver]), source)
    first = caught.value.why.splitlines()[0]
    assert first.startswith(f"line {line}: ") and words in caught.value.why, caught.value.why
    assert "doctor" not in caught.value.next
    assert "_cl_" not in caught.value.why and "kcache" not in caught.value.why


# Logs that others have published, with another place: https://github.com/opencv/opencv_contrib/issues/2108 (Apple),
# https://github.com/beehive-lab/TornadoVM/issues/66 (Apple), https://github.com/krrishnarraj/clpeak/issues/50 (Mesa),
# https://github.com/pocl/pocl/issues/1454 (PoCL).
CL_KERNEL = "/System/Library/Frameworks/OpenCL.framework/Versions/A/lib/clang/3.2/include/cl_kernel.h"
BUILT_IN_LOGS = {
    "Apple": (
        "<program source>:1:7: warning: unused variable 'res'\nfloat res;\n      ^\n"
        "<program source>:4:12: error: call to '__cl_fmax' is ambiguous\n"
        f"{CL_KERNEL}:4549:28: note: expanded from macro 'fmax'\n{CL_KERNEL}:4545:15: note: candidate function\n",
        "line 4: call to 'fmax' is ambiguous",
    ),
    "Apple, fast": (
        "<program source>:4:12: error: call to '__fast_relax_sin' is ambiguous\n"
        f"{CL_KERNEL}:4765:22: note: expanded from macro 'sin'\n",
        "line 4: call to 'sin' is ambiguous",
    ),
    "Mesa": (
        "input.cl:4:12: error: call to 'mad' is ambiguous\ninput.cl:2:22: note: expanded from macro 'MAD_64'\n"
        "/usr/include/clc/math/mad.inc:1:39: note: candidate function\n",
        "line 4: call to 'mad' is ambiguous (in the macro of line 2)",
    ),
    "PoCL": (
        "error: /home/me/.cache/pocl/kcache/tempfile_SZhJqE.cl:4:12 "
        "<Spelling=/home/me/pocl/include/_builtin_renames.h:142:24>: call to '_cl_min' is ambiguous\n",
        "line 4: call to 'min' is ambiguous",
    ),
    "PoCL on Windows": (
        "error: C:\\Users\\me\\kcache\\tempfile_SZhJqE.cl:4:12 "
        "<Spelling=C:\\pocl\\include\\_builtin_renames.h:142:24>: call to '_cl_min' is ambiguous\n",
        "line 4: call to 'min' is ambiguous",
    ),
    "Mesa, linking": (
        '(file=input,line=0,column=0,index=0): Unresolved external reference to "b".\n\nMissing module.\n',
        "line 2: the function 'b' is declared",
    ),
    "NVIDIA": ("ptxas fatal   : Unresolved extern function 'b'\n", "line 2: the function 'b' is declared"),
}


@pytest.mark.parametrize("compiler", BUILT_IN_LOGS)
def test_a_published_log_of_a_mistake_in_a_built_in_names_the_line(compiler):
    log, expected = BUILT_IN_LOGS[compiler]
    _, why = compiler_log.explain_log(ADD, log)
    assert why.startswith(expected), why


# ---------------------------------------------------------------------------------------------- a learner's kernel


def test_a_kernel_knows_its_parameters_and_runs(device):
    source = """
    /* __kernel void k(int wrong) { } */
    float half_of(float x) { return x / 2; }
    __kernel __attribute__((reqd_work_group_size(4, 1, 1)))
    void k(__global const float3 *x, constant float16* y, const int n, global float *restrict out) {
        if (n > 0) { out[get_global_id(0)] = half_of(3); }  // }
    }
    __kernel void other(__global int *z) { z[0] = 1; }"""
    kernel = opencl.Kernel(source, "k", device)
    assert [(parameter.name, parameter.is_array, parameter.width) for parameter in kernel.parameters] == [
        ("x", True, 4),
        ("y", True, 16),
        ("n", False, 1),
        ("out", True, 1),
    ]
    assert kernel.parameters[0].text == "__global const float3 *x"
    out = np.zeros(4, np.float32)
    buffers = [cl.Buffer(kernel.context, cl.mem_flags.READ_WRITE, size=64) for _ in range(3)]
    kernel.kernel(kernel.queue, (4,), (4,), buffers[0], buffers[1], np.int32(1), buffers[2])
    cl.enqueue_copy(kernel.queue, out, buffers[2])
    assert out.tolist() == [1.5] * 4


def test_a_kernel_is_built_with_the_options_that_are_named():
    source = "__kernel void k(__global float *y) { y[get_global_id(0)] = N; }"
    with pytest.raises(KernelError):
        opencl.Kernel(source, "k")
    kernel = opencl.Kernel(source, "k", options=("-DN=3", "-cl-opt-disable"))
    y = np.zeros(1, np.float32)
    buffer = cl.Buffer(kernel.context, cl.mem_flags.WRITE_ONLY, size=y.nbytes)
    kernel.kernel(kernel.queue, (1,), None, buffer)
    cl.enqueue_copy(kernel.queue, y, buffer)
    assert y[0] == 3


def test_a_program_that_lost_its_kernels_is_the_drivers_fault():
    lost = types.SimpleNamespace(kernel_names="")
    with pytest.raises(opencl.KernelError, match="the driver's fault"):
        opencl.expect_kernels(lost, ADD)
    opencl.expect_kernels(lost, "// no kernel here\nint f(int x) { return x; }")
