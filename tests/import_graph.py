"""Who imports whom in helpers, for the rules of the house; what a lesson reaches, to run it again after a change."""

import ast
import functools
import hashlib
import re
import sys
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.errors import WorkshopError
from helpers.judge import mistakes
from helpers.measure import workload

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


@functools.cache
def needed(file):
    """Return the files that a file imports, or names for a process of its own, such as "helpers.running.worker"."""
    named = {MODULES.get(name) for name in re.findall(r"helpers(?:\.\w+)+", FILES[file].read_text(encoding="utf-8"))}
    rooms = {f"{file.rpartition('/')[0]}/__init__".removeprefix("/"), "__init__"}
    return (imported(file) | named | rooms) & FILES.keys()


def code_of(notebook):
    """Return the code of a lesson's cells and solutions as plain Python."""
    cells = [TransformerManager().transform_cell(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    return "\n".join([*cells, *(exercise.solution for exercise in lesson_files.exercises(notebook))])


# What tries the answers of a lesson, beside what the lesson reaches.
TRIES_ANSWERS = [FILES[f"commands/{name}"] for name in ("execute", "lesson_files", "lesson_rules")]
TRIES_ANSWERS.append(ROOT / "tests" / "test_exercises.py")


def reached(lesson):
    """Return every file that can change what a lesson does, or what its checks say to answers: helpers, data, locks."""
    found, waiting = set(), imports(code_of(lesson_files.read(lesson)))
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= needed(file) - found
    code = "".join(FILES[file].read_text(encoding="utf-8") for file in found)
    others = [*ROOT.glob("data/*.*"), *ROOT.glob("data/results/**/*.*"), *ROOT.glob("helpers/**/*.*")]
    others = [path for path in others if path.suffix not in (".py", ".pyc")]
    others = [path for path in others if path.name in code or f'"{path.parent.name}"' in code]  # itself or its folder
    own = [folder / f"{lesson.stem[:2]}.toml" for folder in (mistakes.FOLDER, ROOT / "tests" / "answers")]
    others += [*ROOT.glob("requirements/*.txt"), *own, *TRIES_ANSWERS]
    return {lesson, *(FILES[file] for file in found), *filter(Path.exists, others)}


def fingerprint(lesson):
    """Return a text that changes with the files that a lesson reaches, its Python and its workload.

    None says that it cannot be told, since some of that code cannot be read.
    """
    digest = hashlib.sha256(f"{sys.version} {workload.current()}".encode())
    try:
        for path in sorted(reached(lesson)):
            digest.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    except (SyntaxError, KeyError, AssertionError, WorkshopError):
        return None
    return digest.hexdigest()
