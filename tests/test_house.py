"""The house of helpers: imports run one way, nothing heavy is imported on the way in, lessons find what they use."""

import ast
import fnmatch
import functools
import graphlib
import importlib
import subprocess
import sys

import pytest
from import_graph import FILES, MODULES, code_of, imported

from helpers.commands import lesson_files

# From the ground up: a file imports files of lower rooms alone, or files beside it in its own room.
PLAN = """
    __init__ errors variables setup/* measure/* running/* devices/* training/* tile/* judge/* doctor/* lessons/*
    commands/* __main__
"""
FLOORS = PLAN.split()
HEAVY = "tensorflow jax torch keras pyopencl matplotlib scipy IPython nbformat nbclient nbconvert jupyterlab"
# What answers where packages are broken or slow to import: without NumPy too.
LIGHT = """
    errors variables measure.tables measure.workload running.quiet running.processes devices.host devices
    devices.monitor doctor commands __main__
"""


@functools.cache
def floor(file):
    """Return the number of a file's floor, from the ground; those of one room share it."""
    return next((number for number, pattern in enumerate(FLOORS) if fnmatch.fnmatch(file, pattern)), len(FLOORS))


def test_every_file_has_its_floor():
    assert [file for file in FILES if floor(file) == len(FLOORS)] == []


@pytest.mark.parametrize("file", FILES)
def test_no_import_runs_upwards(file):
    assert [other for other in imported(file) if floor(other) > floor(file)] == []


def test_no_import_runs_in_a_circle():
    assert list(graphlib.TopologicalSorter({file: imported(file) for file in FILES}).static_order())


def loaded_by(modules, names):
    """Return those of `names` that a fresh Python has loaded once it imported `modules`."""
    code = f"import sys, {', '.join(modules)}\nprint(*[name for name in {names!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_all_of_helpers_imports_nothing_heavy():
    assert loaded_by(MODULES, HEAVY.split()) == []


def test_what_must_answer_on_a_broken_machine_needs_no_package():
    modules = ["helpers", *(f"helpers.{name}" for name in LIGHT.split())]
    assert loaded_by(modules, [*HEAVY.split(), "numpy", "pytest"]) == []


def imports(code):
    """Return what the imports in some code bind: {name: (module, name in that module)}."""
    found = {}
    for node in ast.walk(code):
        if isinstance(node, ast.Import | ast.ImportFrom):
            place = getattr(node, "module", "")
            found |= {alias.asname or alias.name: (place, alias.name) for alias in node.names}
    return found


def names_used(code):
    """Return (module of helpers, name) for all that a lesson's code takes from helpers."""
    used, bound = set(), {}
    for statement in ast.parse(code).body:
        here = bound | imports(statement)  # a function that imports something of the same name means that
        if isinstance(statement, ast.ImportFrom):
            bound = here
            used |= {origin for origin in imports(statement).values() if origin[0].startswith("helpers")}
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                place = ".".join(here.get(node.value.id, ()))
                used |= {(place, node.attr)} if place in MODULES else set()
    return used


@pytest.mark.parametrize("lesson", lesson_files.every(), ids=lambda lesson: lesson.stem)
def test_all_that_a_lesson_uses_from_helpers_exists(lesson):
    notebook = lesson_files.read(lesson)
    used = names_used(code_of(notebook))
    assert len(used) > 5
    missing = [
        (place, name)
        for place, name in used
        if f"{place}.{name}" not in MODULES and not hasattr(importlib.import_module(place), name)
    ]
    assert missing == []
