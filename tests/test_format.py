"""The format check finds each thing that a lesson must not hold, and the fix mends what can be mended."""

import base64
import copy
import json
import subprocess
import sys

import nbformat
import pytest
import sample_lesson
from nbformat import v4
from sample_lesson import WORDS, code, markdown

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.maintain import format as formatting
from helpers.maintain import rules

AUTHOR = "<details><summary>For the author: delete this</summary>\n\nten words\n</details>"
PNG = base64.b64encode(b"\x89PNG" + bytes(1000)).decode()


def executed():
    """Return the good sample as it would be after a run."""
    notebook = sample_lesson.notebook()
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            if cell.source == sample_lesson.FIGURE:
                described = {"image/png": {"alt": "A line that rises from 1 to 2"}}
                cell.outputs = [v4.new_output("display_data", {"image/png": PNG}, metadata=described)]
    return notebook


GOOD = executed()
FIGURE = next(i for i, cell in enumerate(GOOD.cells) if cell.source == sample_lesson.FIGURE)
EXERCISE = next(i for i, cell in enumerate(GOOD.cells) if "exercise" in cell.metadata.get("tags", []))


def found(tmp_path, notebook, name="20-add-numbers"):
    return [str(problem) for problem in rules.problems(sample_lesson.save(tmp_path, notebook, name))]


def changed(change):
    notebook = copy.deepcopy(GOOD)
    change(notebook)
    return notebook


def output(**fields):
    """Return a change: one more output for the cell after the figure's."""

    def change(notebook):
        notebook.cells[5].outputs = [nbformat.from_dict(fields)]

    return change


def stdout(text):
    return output(output_type="stream", name="stdout", text=text)


def shown(**data):
    return output(
        output_type="display_data", data={key.replace("_", "/"): value for key, value in data.items()}, metadata={}
    )


def cell(index, source):
    def change(notebook):
        notebook.cells[index].source = source

    return change


def drop(*indexes):
    def change(notebook):
        notebook.cells = [cell for index, cell in enumerate(notebook.cells) if index not in indexes]
        number = 0
        for one in notebook.cells:
            if one.cell_type == "code":
                number += 1
                one.execution_count = number

    return change


def tag(index, *tags):
    def change(notebook):
        notebook.cells[index].metadata["tags"] = list(tags)

    return change


def undescribed(notebook):
    notebook.cells[FIGURE].outputs[0].metadata = {}


def big_figure(notebook):
    notebook.cells[FIGURE].outputs[0].data["image/png"] = base64.b64encode(bytes(80_001)).decode()


def long_cells(notebook):
    for one in notebook.cells:
        if one.cell_type == "code":
            one.source = "x = 1\n" * 6


def test_notes_for_the_author_are_no_words_of_the_lesson():
    with_note = changed(lambda notebook: notebook.cells.append(markdown(AUTHOR)))
    assert rules.count_words(with_note) == rules.count_words(GOOD)


def test_the_good_lesson_has_no_problem(tmp_path):
    assert found(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cell(0, "Add the numbers\n\n| a |\n|---|\n| b |"), "the first cell is not a title"),
        (cell(0, "# Add the numbers"), "no table of one row under the title"),
        (cell(0, "# Add\n\n| a |\n|---|\n| b |\n| c |"), "no table of one row under the title"),
        (drop(17, 18, 19), "24 cells, and a lesson has 25 to 40"),
        (lambda n: n.cells.extend(markdown("x") for _ in range(20)), "47 cells, and a lesson has 25 to 40"),
        (cell(4, WORDS * 12), "words of prose, and a lesson has 800 to 1300"),
        (cell(4, "few"), "note: "),
        (cell(4, f"{AUTHOR} {WORDS}"), "note: a draft: a note for the author is left in cell 5; follow it"),
        (lambda n: n.cells.extend([markdown(AUTHOR), markdown(AUTHOR)]), "left in 2 cells, the first is cell "),
        (cell(5, "WANTED = [2, 3, 6, 101]\n" + "x = 1\n" * 25), "cell 6 (WANTED = [2, 3, 6, 101]): 26 lines of code"),
        (long_cells, "half of the code cells have 6 lines or more, and 5 is the aim"),
        (lambda n: setattr(n.cells[5], "execution_count", None), "outputs are missing or come from several runs"),
        (lambda n: setattr(n.cells[5], "execution_count", 9), "outputs are missing or come from several runs"),
        (lambda n: setattr(n.cells[FIGURE], "outputs", []), "no figure in the stored outputs"),
        (undescribed, "cell 4 (import matplotlib.pyplot as plt): a figure without alternative text"),
        (big_figure, "a figure of 80 KB, and 80 KB is the most"),
        (shown(text_html='<img src="data:image/png;base64,AAAA">'), "a figure without alternative text"),
        (stdout("x" * 450_000), "KB, and 450 KB is the most"),
        (output(output_type="stream", name="stderr", text="oops"), "standard error is stored ('oops')"),
        (stdout("saved in /home/someone/x.npz"), "a path of one machine (/home/someone/x.npz)"),
        (stdout("/opt/venv/lib/python3.12/site-packages/jax"), "a path of one machine"),
        (stdout("saved in C:\\Users\\someone"), "a path of one machine"),
        (stdout("I0000 00:00:1700000000.123 1 cpu.cc:1] hello"), "a log line or a warning"),
        (stdout("I1120 10:00:00.123 1 cpu.cc:1] hello"), "a log line or a warning"),
        (stdout("WARNING:tensorflow:hello"), "a log line or a warning"),
        (stdout("x.py:3: DeprecationWarning: old"), "a log line or a warning"),
        (shown(text_plain="<Device at 0x7f0012345678>"), "an address in memory"),
        (stdout("1\r2"), "a carriage return"),
        (
            shown(**{"application_vnd.jupyter.widget-view+json": {}, "text_plain": "IntSlider()"}),
            "of the kind application/vnd.jupyter.widget-view+json",
        ),
        (output(output_type="error", ename="E", evalue="v", traceback=[]), "a stored error and the tag"),
        (tag(5, "raises-exception"), "a stored error and the tag"),
        (lambda n: n.cells.insert(FIGURE + 1, n.cells.pop(5)), "note: no text after the figure"),
        (tag(EXERCISE), "Exercise 1 is not complete"),
        (cell(EXERCISE, "def next_number(n:"), "the code does not parse"),
        (cell(EXERCISE, "def next_number(n):\n    return n + 1"), "the exercise is its own solution"),
        (cell(EXERCISE + 1, "Think."), "no hint in <details> beside the exercise"),
        (lambda n: n.cells.insert(EXERCISE + 1, code("1")), "the check does not follow its exercise"),
        (lambda n: n.cells.insert(EXERCISE + 3, markdown("x")), "the solution does not follow its check"),
        (cell(EXERCISE + 3, "```python\nx = 1\n```"), "the solution is not folded"),
        (cell(EXERCISE + 3, "<details>\n\nx = 1\n\n</details>"), "holds 0 blocks of code"),
        (drop(*range(EXERCISE - 1, EXERCISE + 4)), "1 exercises, and a lesson has 2 to 4"),
        (lambda n: setattr(n.cells[18], "source", "part = next_number(3)"), "it needs 'next_number' from cell 9"),
        (
            lambda n: setattr(n.cells[18], "source", "def f():\n    return [next_number(i) for i in 'ab']"),
            "'next_number'",
        ),
        (cell(-1, WORDS * 3), "no heading with the word Recap"),
        (cell(4, f"[gone](99-go-nowhere.ipynb) {WORDS}"), "a link leads to 99-go-nowhere.ipynb, which is not there"),
        (cell(4, f"The sum is $a + b$. {WORDS}"), "a formula in LaTeX"),
    ],
)
def test_each_fault_is_found(tmp_path, change, message):
    notebook = rules.normalise(changed(change))
    problems = found(tmp_path, notebook)
    assert any(message in problem for problem in problems), problems
    assert all(problem.startswith("20-add-numbers.ipynb: ") for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        "placed on /job:localhost/replica:0/task:0/device:CPU:0",
        "/GPU:0",
        "see https://example.org/a",
        "5 $ or 6 $",
        "a:b\\n",
    ],
)
def test_what_only_looks_like_a_fault_is_let_through(tmp_path, text):
    assert found(tmp_path, changed(stdout(text))) == []


def test_names_that_a_later_cell_defines_itself_are_no_dependency(tmp_path):
    assert found(tmp_path, changed(cell(18, "next_number = 3\nnext_number"))) == []
    assert found(tmp_path, changed(cell(18, "def f(next_number):\n    return next_number"))) == []


def test_a_name_that_a_solution_overwrites_is_a_dependency_too(tmp_path):
    def change(notebook):
        solution = notebook.cells[EXERCISE + 3]
        solution.source = solution.source.replace("```python\n", "```python\nWANTED = []\n")
        notebook.cells[18].source = "WANTED"

    assert any("it needs 'WANTED' from cell 9" in problem for problem in found(tmp_path, changed(change)))


def test_lessons_link_to_their_neighbours(tmp_path):
    sample_lesson.save(tmp_path, name="19-check-setup")
    sample_lesson.save(tmp_path, name="21-add-letters")
    told = "\n".join(found(tmp_path, GOOD))
    assert "no link to the previous lesson after the recap; add [...](19-check-setup.ipynb)" in told
    assert "no link to the next lesson after the recap; add [...](21-add-letters.ipynb)" in told
    linked = f"## Recap\n[previous](19-check-setup.ipynb) [next](21-add-letters.ipynb) {WORDS * 3}"
    assert found(tmp_path, changed(cell(-1, linked))) == []


def test_long_lessons_may_have_fifty_cells(tmp_path):
    notebook = changed(lambda n: n.cells.extend(markdown("x") for _ in range(15)))
    notebook.cells.append(notebook.cells.pop(26))
    rules.normalise(notebook)
    for folder in ("long", "short"):
        (tmp_path / folder).mkdir()
    assert found(tmp_path / "long", notebook, "08-train-devices") == []
    assert "42 cells, and a lesson has 25 to 40" in found(tmp_path / "short", notebook, "20-place-work")[0]


@pytest.mark.parametrize("name", ["6-add-numbers", "06_add_numbers", "06-Add-numbers", "06-add"])
def test_a_wrong_name_is_found(tmp_path, name):
    assert any("NN-verb-object.ipynb" in problem for problem in found(tmp_path, GOOD, name))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": []}', '{"nbformat": 3, "worksheets": []}', "\ufffd"])
def test_a_broken_file_is_one_problem_and_no_crash(tmp_path, text):
    path = tmp_path / "20-add-numbers.ipynb"
    path.write_text(text, encoding="utf-8")
    assert rules.problems(path)


def test_the_fix_mends_the_form_and_leaves_outputs_and_ids_alone(tmp_path):
    notebook = copy.deepcopy(GOOD)
    for one in notebook.cells:
        one.metadata |= {"execution": {"iopub.status.busy": "2026-01-01"}, "trusted": True}
        one.source += "\n\n"
    notebook.metadata = nbformat.from_dict({"widgets": {}, "language_info": {"name": "python", "version": "3.9"}})
    path = tmp_path / "20-add-numbers.ipynb"
    path.write_text(json.dumps(notebook, indent=4), encoding="utf-8")
    assert [problem for problem in rules.problems(path) if "form" in str(problem)]
    assert formatting.normalise_file(path)
    assert rules.problems(path) == []
    assert sample_lesson.load(path) == GOOD
    assert not formatting.normalise_file(path)


def test_the_fix_gives_an_id_to_each_cell(tmp_path):
    notebook = copy.deepcopy(GOOD)
    del notebook.cells[3]["id"]
    notebook.cells[4]["id"] = notebook.cells[5]["id"]
    path = tmp_path / "20-add-numbers.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert any("ids" in str(problem) for problem in rules.problems(path))
    formatting.normalise_file(path)
    assert rules.problems(path) == []
    assert sample_lesson.load(path).cells[2]["id"] == GOOD.cells[2]["id"]


def test_ruff_and_the_fix_agree_on_a_notebook(tmp_path):
    notebook = copy.deepcopy(GOOD)
    notebook.cells[5].source = "WANTED=[2,3,  6,101] # é"
    path = sample_lesson.save(tmp_path, notebook, "20-add-numbers")
    subprocess.run([sys.executable, "-m", "ruff", "format", str(path)], check=True, capture_output=True)
    assert sample_lesson.load(path).cells[5].source == "WANTED = [2, 3, 6, 101]  # é"
    assert rules.problems(path) == []


# ------------------------------------------------------------------------------------------ what is really there


def test_an_exercise_more_takes_no_room_from_the_lesson(tmp_path):
    own = [markdown("### Exercise 3"), code("y = 1", "exercise"), code("print(y)", "check"), markdown("z", "solution")]

    def sizes(cells):
        path = sample_lesson.save(tmp_path, v4.new_notebook(cells=[*GOOD.cells, *cells]), "20-add-numbers")
        return [problem.what for problem in rules.problems(path) if " cells, and a lesson" in problem.what]

    full = [code(f"x = {number}") for number in range(40 - len(GOOD.cells))]
    assert sizes(full + own) == []
    assert sizes([*full, *own, code("x = 1")]) == ["41 cells, and a lesson has 25 to 40; join or split cells"]


@pytest.mark.parametrize("lesson", lesson_files.every(), ids=lambda lesson: lesson.stem)
def test_the_lesson_keeps_the_rules(lesson):
    assert [str(problem) for problem in rules.problems(lesson) if problem.serious] == []


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name
)
def test_the_local_links_of_a_page_lead_somewhere(page):
    assert rules.broken_links(page.read_text(encoding="utf-8"), page.parent) == []
