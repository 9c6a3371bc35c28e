"""The rules of a lesson's file: each fault is found, and what can be fixed is."""

import base64
import copy
import json
import subprocess
import sys

import nbformat
import pytest
import sample_lesson
from nbformat import v4
from sample_lesson import WORDS

from helpers.commands import lesson_files, lesson_rules, lint, next_lessons
from helpers.judge import mistakes

PNG = base64.b64encode(b"\x89PNG" + bytes(1000)).decode()


def executed():
    """Return the good sample as it would be after a run."""
    notebook = sample_lesson.notebook()
    described = {"image/png": {"alt": "A line that rises from 1 to 2"}}
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
        if cell.source == sample_lesson.FIGURE:
            cell.outputs = [v4.new_output("display_data", {"image/png": PNG}, metadata=described)]
    return notebook


GOOD = executed()
FIGURE = next(i for i, cell in enumerate(GOOD.cells) if cell.source == sample_lesson.FIGURE)
EXERCISE = next(i for i, cell in enumerate(GOOD.cells) if "exercise" in cell.metadata.get("tags", []))


def found(tmp_path, notebook, name="20-add-numbers"):
    return [str(problem) for problem in lesson_rules.problems(sample_lesson.save(tmp_path, notebook, name))]


def changed(change):
    notebook = copy.deepcopy(GOOD)
    change(notebook)
    return notebook


def output(**fields):
    """Return a change: an output for the cell after the figure's."""
    return lambda notebook: notebook.cells[5].update(outputs=[nbformat.from_dict(fields)])


def stdout(text):
    return output(output_type="stream", name="stdout", text=text)


def shown(kind, content):
    return output(output_type="display_data", data={kind: content}, metadata={})


def cell(index, source):
    return lambda notebook: notebook.cells[index].update(source=source)


def figure(**fields):
    return lambda notebook: notebook.cells[FIGURE].outputs[0].update(nbformat.from_dict(fields))


def test_the_good_lesson_has_no_problem(tmp_path):
    assert found(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (cell(0, "Add the numbers\n\n| a |\n|---|\n| b |"), "not a title"),
        (cell(0, "# Add the numbers"), "no table of one row"),
        (cell(-1, WORDS), "Recap"),
        (lambda n: n.cells[5].update(execution_count=None), "outputs are missing"),
        (lambda n: n.cells[5].update(execution_count=9), "several runs"),
        (figure(metadata={}), "cell 4 (import matplotlib.pyplot as plt): a figure without alternative text"),
        (figure(data={"image/png": base64.b64encode(bytes(80_001)).decode()}), "80 KB"),
        (shown("application/vnd.jupyter.widget-view+json", {}), "widget-view"),
        (output(output_type="stream", name="stderr", text="oops"), "standard error is stored ('oops')"),
        (stdout("saved in /home/someone/x.npz"), "a path of one machine (/home/someone/x.npz)"),
        (stdout("saved in C:\\Users\\someone"), "a path of one machine"),
        (stdout("/opt/venv/lib/python3.12/site-packages/jax"), "a path of one machine"),
        (stdout("I0000 00:00:1700000000.123 1 cpu.cc:1] hello"), "a log line"),
        (stdout("WARNING:tensorflow:hello"), "a log line"),
        (stdout("x.py:3: DeprecationWarning: old"), "a log line"),
        (shown("text/plain", "<Device at 0x7f0012345678>"), "an address in memory"),
        (stdout("1\r2"), "a carriage return"),
        (lambda n: n.cells[4].update(cell_type="raw"), "cell 5 (The line rises."),
        (lambda n: n.cells[4].update(cell_type="raw"), "press M for text"),
        (cell(4, ""), "an empty cell"),
        (lambda n: n.cells.append(v4.new_code_cell()), "an empty cell"),
        (lambda n: n.cells[EXERCISE].metadata.update(tags=[]), "Exercise 1 is not complete"),
        (lambda n: n.cells[EXERCISE].update(cell_type="markdown"), "change the kind"),
        (cell(EXERCISE + 1, "Think."), "no hint"),
        (cell(EXERCISE - 1, f"### Exercise 2: next\n{WORDS}"), "number them from 1"),
        (cell(EXERCISE + 3, "```python\nx = 1\n```"), "not folded"),
        (stdout("x" * 300_000), "the limit is 300 KB"),
        (cell(18, "part = next_number(3)"), "it needs 'next_number' from cell 9"),
        (cell(18, "def f():\n    return [next_number(i) for i in 'ab']"), "'next_number'"),
    ],
)
def test_each_fault_is_found(tmp_path, change, fact):
    problems = found(tmp_path, lesson_rules.normalise(changed(change)))
    assert any(fact in problem for problem in problems), problems
    assert all(problem.startswith("20-add-numbers.ipynb: ") for problem in problems)


def test_a_misspelled_table_of_answers_is_a_problem_of_its_lesson(tmp_path, monkeypatch):
    (tmp_path / "lesson_20.toml").write_text("[20.1.rihgt]\n'a' = 'x = 1'\n")
    monkeypatch.setattr(mistakes.read, "__defaults__", (tmp_path,))
    assert ["lesson_20.toml: [20.1.rihgt]" in problem for problem in found(tmp_path, GOOD)] == [True]


@pytest.mark.parametrize("text", ["placed on /job:localhost/replica:0/task:0/device:CPU:0", "/GPU:0", "a:b\\n"])
def test_what_only_looks_like_a_path_is_let_through(tmp_path, text):
    assert found(tmp_path, changed(stdout(text))) == []


@pytest.mark.parametrize("source", ["next_number = 3\nnext_number", "def f(next_number):\n    return next_number"])
def test_names_that_a_later_cell_defines_itself_are_no_dependency(tmp_path, source):
    assert found(tmp_path, changed(cell(18, source))) == []


LINKS = {number: f"[{number}]({number}-x.ipynb)" for number in ["00", "01", "01b", "02", "03", "03b", "11"]}


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        ("00", "[01](01-x.ipynb) (short, all)"),  # two paths, one lesson
        ("01", "[02](02-x.ipynb) (short) · [03](03-x.ipynb) (all) · [01b](01b-x.ipynb) (second session)"),
        ("01b", "[02](02-x.ipynb) (short) · [03](03-x.ipynb) (all)"),  # as its first session
        ("03", "[03b](03b-x.ipynb) (all, second session)"),  # a second session on a path
        ("03b", "[02](02-x.ipynb) (all)"),
        ("02", ""),  # where each path ends
        ("11", ""),  # on no path
    ],
)
def test_a_lesson_ends_with_where_each_path_goes_on(number, wanted):
    paths = {"Short": ["00", "01", "02"], "All": ["00", "01", "03", "03b", "02"]}
    everything = "[all lessons and paths](../README.md#lessons)"
    assert next_lessons.list_next(number, LINKS, paths) == "Next: " + " · ".join(filter(None, [wanted, everything]))


def test_readme_names_paths_whose_lessons_exist_and_every_lesson_ends_with_its_links():
    numbers = {lesson_files.number(path) for path in lesson_files.every()}
    paths = next_lessons.read_paths()
    assert len(paths) == 4 and numbers.issuperset(number for path in paths.values() for number in path)
    assert [path.name for path in next_lessons.find_outdated()] == [], "python3 workshop.py lint --fix writes them"


@pytest.mark.parametrize("name", ["6-add-numbers", "06-Add-numbers", "06-add", "06c-add-numbers"])
def test_a_wrong_name_is_found(tmp_path, name):
    assert any("NN-verb-object" in problem for problem in found(tmp_path, GOOD, name))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": []}', '{"nbformat": 3, "worksheets": []}', "\ufffd"])
def test_a_broken_file_is_one_problem_and_no_crash(tmp_path, text):
    path = tmp_path / "20-add-numbers.ipynb"
    path.write_text(text, encoding="utf-8")
    assert lesson_rules.problems(path)


def test_the_form_is_mended_and_outputs_and_ids_stay(tmp_path):
    notebook = copy.deepcopy(GOOD)
    for each in notebook.cells:
        each.metadata |= {"execution": {"iopub.status.busy": "2026-01-01"}, "trusted": True}
        each.source += "\n\n"
    notebook.metadata = nbformat.from_dict({"widgets": {}, "language_info": {"name": "python", "version": "3.9"}})
    del notebook.cells[3]["id"]
    notebook.cells[4]["id"] = notebook.cells[5]["id"]
    path = tmp_path / "20-add-numbers.ipynb"
    path.write_text(json.dumps(notebook, indent=4), encoding="utf-8")
    assert ["form" in problem.what for problem in lesson_rules.problems(path)] == [True]
    assert lint.normalise_file(path) and lesson_rules.problems(path) == []
    mended = sample_lesson.load(path)
    assert [cell.get("outputs") for cell in mended.cells] == [cell.get("outputs") for cell in GOOD.cells]
    ids, before = ([cell.id for cell in made.cells] for made in (mended, GOOD))
    assert len(set(ids)) == len(ids) and ids[:3] + ids[6:] == before[:3] + before[6:]
    assert not lint.normalise_file(path)


def test_ruff_and_the_form_agree_on_a_notebook(tmp_path):
    path = sample_lesson.save(tmp_path, changed(cell(5, "WANTED=[2,3,  6,101] # é")), "20-add-numbers")
    subprocess.run([sys.executable, "-m", "ruff", "format", str(path)], check=True, capture_output=True)
    assert sample_lesson.load(path).cells[5].source == "WANTED = [2, 3, 6, 101]  # é"
    assert lesson_rules.problems(path) == []


@pytest.mark.parametrize("lesson", lesson_files.every(), ids=lambda lesson: lesson.stem)
def test_the_lesson_keeps_the_rules(lesson):
    assert [str(problem) for problem in lesson_rules.problems(lesson)] == []
