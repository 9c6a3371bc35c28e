"""A GPU's way through the workshop, on the simulator Oclgrind: it says it is a GPU with local memory.

Nothing else in the tests takes the branches for GPUs: the picked device, Tile's blocks, lessons 01, 02, 03, 12 and 15.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from helpers import devices
from helpers.commands import execute, lesson_files
from helpers.running import processes


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
        # The optimizer would drop reads whose value nobody uses, and merge two barriers of two branches into one.
        # Oclgrind's OpenCL C 1.2 knows the older name of the barrier alone.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable -Dwork_group_barrier=barrier",
    }


VARIABLES = oclgrind_variables()
pytestmark = pytest.mark.skipif(not VARIABLES, reason="Oclgrind is not installed: apt install oclgrind")
SYSTEM = Path("/etc/OpenCL/vendors")  # where drivers are registered on Linux
CELL_SECONDS = 120


def test_the_simulator_is_called_one_and_nowhere_a_gpu(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    answer = devices.ask("opencl")
    (row,) = devices.make_table([answer]).rows
    assert row[2] == "simulator" and "GPU" not in " ".join(row)
    assert str(devices.pick([answer])).endswith(", OpenCL, simulator)")


def pick():
    """Run in a process: the devices in the order of preference, whether each compiles, and the one that is picked."""
    from helpers.devices import opencl

    found = [
        (opencl.name(device), opencl.kind(device), opencl.find_problem(device)) for device in opencl._list_candidates()
    ]
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


# ------------------------------------------------------------------------------------------------------- whole lessons

# Numbers in the lessons' cells that become less than under `preview`, (old, new). One that is not there is no matter.
LESS = {
    "01": [("50_000", "5_000"), ("50_048", "5_056")],
    "02": [("384", "48"), ("n, rows = 32", "n, rows = 16")],
    "03": [
        ("384", "48"),
        ("250, 1000)", "40)"),
        ("16_384", "256"),
        ("(16, 32, 128, 1_024)", "(16, 32)"),
        ("2_000_000", "2_000"),
    ],
    "12": [("64_000", "640"), ("640_000", "640")],
    "15": [("1_024", "64")],
}
LESS_IN_HELPERS = {
    "03": """
lesson.ROWS = 16  # so that the table times 256 numbers, as many as the cell counts""",
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
    outcome = execute.execute(notebook, path.parent, "preview", cell_seconds=CELL_SECONDS, variables=variables)
    assert outcome.failure is None
    assert execute.loud(notebook) == []
    facts = lesson_files.facts(notebook)
    assert facts["device"].endswith(", OpenCL, simulator)")
    shown = "\n".join(execute.text(cell) for cell in cells)
    assert not re.search(r"OpenCL, (GPU|CPU)", shown)
