"""A GPU's way through the workshop, on the simulator Oclgrind: it says it is a GPU with local memory.

Nothing else in the tests takes the branches for GPUs: the picked device, Tile's blocks, lessons 01, 02, 03, 12 and 15.
"""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import execute, lesson_files
from helpers.compute import devices, processes
from helpers.measure import workload


def oclgrind_variables():
    """Return the variables of a process for which the simulator Oclgrind is the only OpenCL; empty if it is not here.

    They work for the loader in PyOpenCL's wheel and for the one of Debian and Ubuntu (both are ocl-icd).
    """
    program = shutil.which("oclgrind")
    folder = Path(program).resolve().parent.parent / "lib" if program else Path()
    drivers = [folder / place / "liboclgrind-rt-icd.so" for place in ("oclgrind", "")]
    driver = next((path for path in drivers if program and path.exists()), None)
    if driver is None:
        return {}
    return {
        "OCL_ICD_VENDORS": str(driver),
        "PYOPENCL_CTX": "",
        "PYOPENCL_NO_CACHE": "1",  # of a kernel from PyOpenCL's cache, Oclgrind would not know the lines
        # The optimiser would drop reads whose value nobody uses, and merge two barriers of two branches into one.
        # Oclgrind's OpenCL C 1.2 knows the older name of the barrier alone.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable -Dwork_group_barrier=barrier",
    }


VARIABLES = oclgrind_variables()
WATCHED = VARIABLES | {  # slower
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNIFORM_WRITES": "1",  # races also where all write the same value
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_NUM_THREADS": "1",  # the messages in the same order each time
}
pytestmark = pytest.mark.skipif(not VARIABLES, reason="Oclgrind is not installed: apt install oclgrind")
SYSTEM = Path("/etc/OpenCL/vendors")  # where drivers are registered on Linux
CELL_SECONDS = 120


def test_the_simulator_is_called_one_and_nowhere_a_gpu(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    answer = devices.ask("opencl")
    (row,) = devices.table([answer]).rows
    assert row[2] == "simulator" and "GPU" not in " ".join(row)
    assert str(devices.pick([answer])).endswith(", OpenCL, simulator)")


def pick():
    """Run in a process: the devices in the order of preference, whether each compiles, and the one that is picked."""
    from helpers.compute import opencl

    found = [(opencl.name(one), opencl.kind(one), opencl.problem(one)) for one in opencl._candidates()]
    return found, opencl.name(opencl.pick_device())


def test_a_real_device_is_preferred(tmp_path):
    """Also a CPU: a simulator is hundreds of times slower."""
    for file in SYSTEM.glob("*.icd"):
        shutil.copy(file, tmp_path)
    (tmp_path / "0.icd").write_text(VARIABLES["OCL_ICD_VENDORS"] + "\n")
    found, picked = processes.run(pick, variables=VARIABLES | {"OCL_ICD_VENDORS": str(tmp_path)}).result
    assert "simulator" in [kind for _, kind, _ in found]
    real = [name for name, kind, problem in found if kind != "simulator" and not problem]
    if not real:
        pytest.skip("no other OpenCL device here compiles")
    assert picked == real[0]


def test_the_tiny_workload_is_for_tests_and_offered_to_nobody(monkeypatch):
    monkeypatch.setenv(workload.VARIABLE, workload.TINY)
    assert workload.pick(preview=2, lab=3, full=4) == workload.budget(preview=2, lab=3) == 2
    assert workload.TINY not in workload.WORKLOADS


# ------------------------------------------------------------------------------------------- kernels, without a finding

MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }"
OPERATIONS = [  # a Tile function, the shapes of its inputs, its blocks (None: chosen for a GPU), the same in NumPy
    *((MATMUL, ((17, 5), (5, 9)), block, np.matmul) for block in (None, (1, 1), (3, 16), (6, 32))),
    (MATMUL, ((40, 33), (33, 35)), None, np.matmul),
    ("function (A[M, N]) -> (S) { S[j: N] = +(A[i, j]); }", ((37, 21),), None, lambda a: a.sum(axis=0)),
    ("function (A[M, N]) -> (O) { O[i: M] = >(A[i, j]); }", ((37, 21),), None, lambda a: a.max(axis=1)),
    ("function (I[N]) -> (O) { O[i: N] = +(I[k]), i - k < N; }", ((70,),), None, np.cumsum),
]


def tiled(source, arrays, block):
    """Run in a process: what a Tile function computes, its blocks, and the work-group of its last kernel."""
    from helpers import tile

    function = tile.Function(source, tile=block)
    actual = function(*arrays)
    stages = function.stages(*(array.shape for array in arrays))
    return actual, str(stages.tiles), stages.code.kernels[-1].local_size


@pytest.mark.slow
@pytest.mark.parametrize(("source", "shapes", "block", "reference"), OPERATIONS)
def test_what_tile_computes_on_a_gpu_is_right_and_oclgrind_finds_nothing(source, shapes, block, reference):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    run = processes.run(tiled, variables=WATCHED, arguments={"source": source, "arrays": arrays, "block": block})
    actual, tiles, group = run.result
    assert run.stderr[0] == ""
    assert np.allclose(actual, reference(*arrays), rtol=1e-4, atol=1e-4)
    if source == MATMUL and block is None:
        assert "4 (i) x 4 (j) elements a work-item" in tiles and group[:2] == (8, 8)


def numbers(n, dtype=np.float32):
    return np.random.default_rng(n).integers(-99, 100, n).astype(dtype)


def in_one_dimension(arguments, groups=(64, 20)):
    """Return launches of kernels whose work-items have one element each: (global size, local size, arguments)."""
    sizes = [(n, group) for n in (1, 63, 65, 200) for group in groups]
    return [((-(-n // group) * group,), (group,), [*arguments(n), np.int32(n)]) for n, group in sizes]


def of_matrices(group=(8, 4), each=2):
    """Yield launches of kernels whose work-items have `each` columns and rows; dimension 0 counts the columns."""
    for m, n, k in ((1, 1, 1), (5, 7, 3), (17, 23, 9)):
        grid = tuple(-(-size // (each * items)) * items for size, items in zip((n, m), group, strict=True))
        yield grid, group, [numbers(m * k), numbers(k * n), numbers(m * n), *map(np.int32, (m, n, k))]


def of_elements():
    """Yield launches of a kernel without a guard: one work-item for each element, dimension 0 counts the columns."""
    for _, _, arguments in of_matrices():
        m, n, _ = arguments[3:]
        yield (int(n), int(m)), None, arguments


def of_squares():
    """Yield launches of the transposition, whose work-items move four numbers each."""
    for n in (32, 96):
        yield (n, n // 4), (32, 8), [numbers(n * n), numbers(n * n), np.int32(n)]


LAUNCHES = {  # of the kernels that solve exercises, by name
    "add": in_one_dimension(lambda n: [numbers(n), numbers(n), numbers(n)]),
    "smooth": in_one_dimension(lambda n: [numbers(n), numbers(n)]),
    "pairs": in_one_dimension(lambda n: [numbers(n, np.int32), numbers(n, np.int32)], groups=(64,)),
    "group_sums": in_one_dimension(lambda n: [numbers(n, np.int32), numbers(n, np.int32)], groups=(64,)),
    "multiply": list(of_elements()),
    "tiled": list(of_matrices((16, 16), each=1)),
    "block": list(of_matrices()),
    "drift": [((n,), (32,), [numbers(8 * n), numbers(n), np.int32(n)]) for n in (32, 96)],
    "transpose": list(of_squares()),
}


def kernel_of(code):
    """Return (name, source) of the first kernel in the texts that an answer assigns."""
    names = {}
    exec(code, names)
    sources = [value for value in names.values() if isinstance(value, str)]
    found = [(re.search(r"kernel\s+void\s+(\w+)", source), source) for source in sources]
    return next((match[1], source) for match, source in found if match)


SOLUTIONS = dict(
    kernel_of(one.solution)
    for path in lesson_files.find(["01", "02", "02b", "12", "15"])
    for one in lesson_files.exercises(lesson_files.read(path))
    if re.search(r"kernel\s+void", one.solution)
)


def launch_all(source, name, launches):
    """Run in a process: launch a kernel several times; the arrays of `const` parameters may only be read."""
    import numpy as np
    import pyopencl as cl

    from helpers.compute import opencl

    kernel = opencl.Kernel(source, name)
    for global_size, local_size, arguments in launches:
        passed = []
        for parameter, argument in zip(kernel.parameters, arguments, strict=True):
            if isinstance(argument, np.ndarray):
                access = cl.mem_flags.READ_ONLY if "const" in parameter.text.split() else cl.mem_flags.READ_WRITE
                argument = cl.Buffer(kernel.context, access | cl.mem_flags.COPY_HOST_PTR, hostbuf=argument)
            passed.append(argument)
        kernel.kernel(kernel.queue, global_size, local_size, *passed)
    kernel.queue.finish()


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLUTIONS)
def test_oclgrind_finds_nothing_in_a_kernel_that_solves_an_exercise(name):
    assert name in LAUNCHES, "say in LAUNCHES how it is launched"
    arguments = {"source": SOLUTIONS[name], "name": name, "launches": LAUNCHES[name]}
    assert processes.run(launch_all, variables=WATCHED, arguments=arguments).stderr[0] == ""


def test_oclgrind_would_find_a_missing_guard():
    source = "__kernel void add(__global const float *a, __global const float *b, __global float *c, const int n) {"
    source += " int i = get_global_id(0); c[i] = a[i] + b[i]; }"
    arguments = {"source": source, "name": "add", "launches": LAUNCHES["add"][:1]}
    assert "Invalid read" in processes.run(launch_all, variables=WATCHED, arguments=arguments).stderr[0]


# ------------------------------------------------------------------------------------------------------- whole lessons

# The tiny workload: numbers in the lessons' cells that become less, (old, new). One that is not there is no matter.
LESS = {
    "01": [("50_000", "5_000"), ("50_048", "5_056")],
    "02": [("384", "48"), ("2**23", "2**12"), ("n, rows = 32", "n, rows = 16")],
    "03": [("384", "48"), ("250, 1000)", "40)"), ("16_384", "256"), ("2_000_000", "2_000")],
    "12": [("64_000", "640"), ("100_000,", "1_000,"), ("5_000", "50")],
    "15": [("1_024", "32")],
}
LESS_IN_HELPERS = {
    "02": """
lesson.AWKWARD = lesson.AWKWARD[:3]
lesson.peak.__defaults__ = (2**6, 10)
lesson.MatmulBenchmark.test.__defaults__ = (lesson.AWKWARD,)""",
}


@pytest.mark.slow
@pytest.mark.parametrize("number", LESS)
def test_a_lesson_runs_from_top_to_bottom_on_a_gpu(number):
    (path,) = lesson_files.find([number])
    notebook = lesson_files.read(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        for old, new in LESS[number]:
            cell.source = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, cell.source)
    cells[0].source += LESS_IN_HELPERS.get(number, "")
    variables = VARIABLES | {"OCLGRIND_LOG": os.devnull}  # broken kernels are shown on purpose
    outcome = execute.execute(notebook, path.parent, workload.TINY, cell_seconds=CELL_SECONDS, variables=variables)
    assert outcome.failure is None
    assert execute.loud(notebook) == []
    facts = lesson_files.facts(notebook)
    assert facts["profile"] == "tiny" and facts["device"].endswith(", OpenCL, simulator)")
    shown = "\n".join(execute.text(cell) for cell in cells)
    assert not re.search(r"OpenCL, (GPU|CPU)", shown)
