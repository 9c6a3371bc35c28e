"""Who imports whom in helpers, and what code a lesson holds, for the rules of the house (test_house)."""

import ast
import functools

from IPython.core.inputtransformer2 import TransformerManager

from helpers import ROOT
from helpers.commands import lesson_files

FILES = {path.relative_to(ROOT / "helpers").with_suffix("").as_posix(): path for path in ROOT.glob("helpers/**/*.py")}
MODULES = {f"helpers/{file}".removesuffix("/__init__").replace("/", "."): file for file in FILES}


def imports(code):
    """Return the files of helpers that some code imports anywhere: in functions and for type hints too."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] == "helpers"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"write {node.module} in full"
            if node.module.partition(".")[0] == "helpers":
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in MODULES else node.module for name in names}
    return {MODULES[name] for name in found}


@functools.cache
def imported(file):
    """Return the files that a file of helpers imports."""
    return imports(FILES[file].read_text(encoding="utf-8")) - {file}  # checks imports itself for another process


def code_of(notebook):
    """Return the code of a lesson's cells and solutions as plain Python."""
    cells = [TransformerManager().transform_cell(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    return "\n".join([*cells, *(exercise.solution for exercise in lesson_files.exercises(notebook))])
