"""A GPU's way through the workshop, on Oclgrind: it says it is a GPU with local memory, and is called a simulator here.

Nothing else in the tests takes the branches for GPUs: the device that is picked, Tile's blocks, lessons 01, 02, 03, 12.
"""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import execute, lesson_files
from helpers.compute import devices, processes
from helpers.compute.frameworks import Device
from helpers.judge import oclgrind
from helpers.measure import workload

pytestmark = pytest.mark.skipif(not oclgrind.installed(), reason="Oclgrind is not installed: apt install oclgrind")
SYSTEM = Path("/etc/OpenCL/vendors")  # where drivers are registered on Linux
CELL_SECONDS = 120


def called():
    """Run in a process: what the workshop calls each device, whether it compiles, and which it picks."""
    from helpers.compute import devices, opencl

    found = [(opencl.name(one), opencl.kind(one), devices.compile_problem(one)) for one in opencl._candidates()]
    return found, opencl.name(opencl.pick_device())


def test_the_simulator_is_called_one_and_nowhere_a_gpu():
    found, picked = processes.run(called, variables=oclgrind.variables()).result
    assert [(name, kind) for name, kind, _ in found] == [(picked, "simulator")]
    assert re.fullmatch(r"Oclgrind Simulator \(Oclgrind [\d.]+, OpenCL, simulator\)", picked)


def test_the_table_of_devices_calls_it_a_simulator():
    answer = devices.ask("opencl", variables=oclgrind.variables())
    (row,) = devices.table([answer]).rows
    assert row[2] == "simulator" and "GPU" not in " ".join(row)


def test_a_real_device_is_preferred(tmp_path):
    """Also a CPU: a simulator is hundreds of times slower."""
    for file in SYSTEM.glob("*.icd"):
        shutil.copy(file, tmp_path)
    variables = oclgrind.variables()
    (tmp_path / "0.icd").write_text(variables["OCL_ICD_VENDORS"] + "\n")
    found, picked = processes.run(called, variables=variables | {"OCL_ICD_VENDORS": str(tmp_path)}).result
    assert "simulator" in [kind for _, kind, _ in found]
    real = [name for name, kind, problem in found if kind != "simulator" and not problem]
    if not real:
        pytest.skip("no other OpenCL device here compiles")
    assert picked == real[0]


def test_it_is_the_last_to_be_picked_of_all_frameworks():
    simulator = Device("opencl", "0:0", "Oclgrind Simulator", "simulator")
    processor = Device("jax", "cpu:0", "A CPU", "cpu")
    answers = [devices.Answer("opencl", "ok", devices=(simulator,)), devices.Answer("jax", "ok", devices=(processor,))]
    assert devices.pick(answers) is processor and devices.pick(answers[:1]) is simulator


def test_the_tiny_workload_is_for_tests_and_offered_to_nobody(monkeypatch):
    monkeypatch.setenv(workload.VARIABLE, workload.TINY)
    assert workload.pick(preview=2, lab=3, full=4) == workload.budget(preview=2, lab=3) == 2
    monkeypatch.setenv(workload.VARIABLE, "turbo")
    with pytest.raises(workload.WorkshopError) as caught:
        workload.current()
    assert "tiny" not in str(caught.value)


# ------------------------------------------------------------------------------------------------ Tile's blocks

MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j: M, N] = +(A[i, k] * B[k, j]); }"
OPERATIONS = [  # a function, the shapes of its inputs, the same in NumPy
    *((MATMUL, shapes, np.matmul) for shapes in (((1, 1), (1, 1)), ((17, 5), (5, 9)), ((40, 33), (33, 35)))),
    ("function (A[M, N]) -> (S) { S[j: N] = +(A[i, j]); }", ((37, 21),), lambda a: a.sum(axis=0)),
    ("function (A[M, N]) -> (O) { O[i: M] = >(A[i, j]); }", ((37, 21),), lambda a: a.max(axis=1)),
    ("function (I[N]) -> (O) { O[i: N] = +(I[k]), i - k < N; }", ((70,),), np.cumsum),
    ("function (A[M, N]) -> (O) { O = A * 2; }", ((9, 13),), lambda a: 2 * a),
]


def tiled(source, arrays, block):
    """Run in a process: what a Tile function computes, its blocks, and the work-group of its last kernel."""
    from helpers import tile

    function = tile.Function(source, tile=block)
    came = function(*arrays)
    stages = function.stages(*(array.shape for array in arrays))
    return came, str(stages.tiles), stages.code.kernels[-1].local_size


@pytest.mark.parametrize(("source", "shapes", "reference"), OPERATIONS)
def test_what_tile_computes_on_a_gpu_is_right_and_oclgrind_finds_nothing(source, shapes, reference):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    report = oclgrind.run(tiled, arguments={"source": source, "arrays": arrays, "block": None})
    assert (report.findings, report.failure) == ([], "")
    assert np.allclose(report.result[0], reference(*arrays), rtol=1e-4, atol=1e-4)


def test_a_gpu_gets_blocks_of_4_x_4_in_work_groups_of_8_x_8():
    a, b = np.ones((2, 40, 40), np.float32)
    came, tiles, group = oclgrind.run(tiled, arguments={"source": MATMUL, "arrays": [a, b], "block": None}).result
    assert "4 (i) x 4 (j) elements a work-item" in tiles and group[:2] == (8, 8)
    assert (came == 40).all()


@pytest.mark.parametrize("block", [(1, 1), (3, 16), (6, 32)])
def test_other_blocks_are_right_on_a_gpu_too(block):
    a, b = np.random.default_rng(1).standard_normal((2, 19, 19), dtype=np.float32)
    report = oclgrind.run(tiled, arguments={"source": MATMUL, "arrays": [a, b], "block": block})
    assert report.findings == [] and np.allclose(report.result[0], a @ b, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------- whole lessons, slow

# The tiny workload: numbers in the lessons' cells that become less, (old, new). One that is not there is no matter.
LESS = {
    "01": [("10_000_000", "10_000"), ("10_240_000", "10_240"), ("10**6", "10**4")],
    "02": [("384", "48"), ("96", "48"), ("2**14", "2**6"), ("2**24", "2**14"), ("2**20", "2**8"), ("1000", "10")],
    "03": [("384", "48"), ("250, 1000)", "40)"), ("2_000_000", "2_000")],
    "12": [("2_560_000", "6_400"), ("100_000,", "1_000,"), ("5_000", "50")],
}
LESS_IN_HELPERS = {
    "02": """
lesson.AWKWARD, lesson.TRACED = lesson.AWKWARD[:3], 48
lesson.MatmulBenchmark.test.__defaults__ = (lesson.AWKWARD,)""",
    "03": """
for name, one in plaidml.OPERATIONS.items():
    few = {array: tuple(min(n, 8) for n in shape) for array, shape in one.shapes.items()}
    plaidml.OPERATIONS[name] = one._replace(shapes=few)""",
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
    variables = oclgrind.variables() | {"OCLGRIND_LOG": os.devnull}  # broken kernels are shown on purpose
    outcome = execute.execute(notebook, path.parent, workload.TINY, cell_seconds=CELL_SECONDS, variables=variables)
    assert outcome.failure is None
    assert execute.loud(notebook) == []
    facts = lesson_files.facts(notebook)
    assert facts["profile"] == "tiny" and facts["device"].endswith(", OpenCL, simulator)")
    shown = "\n".join(execute.text(cell) for cell in cells)
    assert not re.search(r"OpenCL, (GPU|CPU)", shown)


def judge(solution, check, lesson):
    """Run in a process: an exercise's check on its solution."""
    import importlib

    names = {"lesson": importlib.import_module(f"helpers.lessons.lesson_{lesson}")}
    exec(solution, names)
    exec(check, names)


TIMED = r"void block\(|function \(A\[M, N\]"  # their checks also time, more than a simulator can do
EXERCISES = [
    pytest.param(path.stem[:2], one.solution, notebook.cells[one.check].source, id=f"{path.stem[:2]}-{one.number}")
    for path in lesson_files.find(LESS)
    for notebook in [lesson_files.read(path)]
    for one in lesson_files.exercises(notebook)
    if re.search(r"kernel|function \(", one.solution) and not re.search(TIMED, one.solution)
]


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "solution", "check"), EXERCISES)
def test_a_solution_is_right_on_a_gpu_too(lesson, solution, check):
    variables = oclgrind.variables() | {"OCLGRIND_LOG": os.devnull}
    arguments = {"solution": solution, "check": check, "lesson": lesson}
    said = processes.run(judge, seconds=CELL_SECONDS, variables=variables, arguments=arguments).stdout[0]
    assert said.startswith("right (")
