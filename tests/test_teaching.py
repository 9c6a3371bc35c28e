"""The guide for teachers, CONTRIBUTING.md and the project's habits: what they name exists, what they count is right."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from test_docs import check_call, typed

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.maintain import docs, new_lesson, on_gpu, rules

GUIDE, SCRIPTS, EXAM = (ROOT / "docs" / name for name in ("teaching.md", "teaching/lessons.md", "teaching/exam.md"))
ROOT_PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")]
FORMS = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LESSONS = {path.name[:2]: path for path in lesson_files.every()}
NOTEBOOKS = {number: lesson_files.read(path) for number, path in LESSONS.items()}
LINK = r"\[[^\]]*\]\([./]*notebooks/(\d\d)-[^)]*\)"
NOT_HEADINGS = {"Used", "Next", "Run All", "Where they stall"}  # in italics with a capital, and no headings of a lesson


def read(path):
    return path.read_text(encoding="utf-8")


def id_of(path):
    return path.name


def minutes(number):
    """Return the minutes in a lesson's head."""
    return int(re.search(r"\| (\d+) minutes", NOTEBOOKS[number].cells[0].source)[1])


def headings(number):
    """Return {heading: the code under it} of a lesson."""
    found, now = {}, ""
    for cell in NOTEBOOKS[number].cells:
        if cell.cell_type == "code":
            found[now] = found.get(now, "") + cell.source
            continue
        for heading in re.findall(r"^##+ (.*)$", re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL), re.MULTILINE):
            found[now := heading] = ""
    return found


def in_italics(text):
    """Return what stands in italics and begins like a heading: a capital letter or a digit."""
    found = re.findall(r"(?<![*\w])\*([^*]+)\*(?![*\w])", " ".join(text.split()))
    return [one for one in found if (one[0].isupper() or one[0].isdigit()) and one not in NOT_HEADINGS]


# ---------------------------------------------------------------------------------------------------- all the pages


@pytest.mark.parametrize("page", ROOT_PAGES, ids=id_of)
def test_every_link_of_a_page_beside_the_readme_leads_somewhere(page):
    assert docs.broken(page) == []


@pytest.mark.parametrize("page", [*ROOT_PAGES, GUIDE, SCRIPTS, EXAM, *FORMS, *ROOT.glob(".github/*.md")], ids=id_of)
def test_every_command_that_a_page_names_exists(page):
    for arguments in typed(read(page)):
        words = [word.replace("NN", "01").replace("WORD", "docs").strip(",.:*") for word in arguments]
        try:
            check_call([word for word in words if re.match(r"[\w./-]", word)])
        except SystemExit:
            pytest.fail(f"{page.name}: workshop.py {' '.join(arguments)} is not understood")


def test_no_page_names_a_path_of_one_machine():
    for page in [*ROOT_PAGES, GUIDE, SCRIPTS, EXAM, *FORMS]:
        assert not re.search(r"(?<![\w.])/(?:root|home|work|tmp|Users)/|[A-Z]:\\", read(page)), page.name


# ----------------------------------------------------------------------------------------------------- the timetables


def timetables():
    """Return for each timetable its title and its rows, each a list of cells."""
    found = {}
    for title, text in re.findall(r"^### ([^\n]*)$(.*?)(?=^##)", read(GUIDE), re.MULTILINE | re.DOTALL):
        if table := re.search(r"(?<=\n\n)\| clock .*?(?=\n\n|\Z)", text, re.DOTALL):
            lines = table[0].splitlines()[2:]
            found[title] = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return found


def test_the_clock_of_each_timetable_agrees_with_its_minutes():
    tables = timetables()
    assert [title.split(":")[0] for title in tables] == ["90 minutes", "Half a day", "A full day"]
    for title, rows in tables.items():
        clock = [60 * int(hour) + int(minute) for hour, minute in (row[0].split(":") for row in rows)]
        assert rows[-1][2] == "end"
        assert [int(row[1]) for row in rows[:-1]] == [end - start for start, end in itertools.pairwise(clock)], title
        assert clock[-1] - clock[0] == {"90": 90, "Ha": 240, "A ": 480}[title[:2]]


def test_a_whole_lesson_in_a_timetable_has_the_minutes_of_its_head():
    for rows in timetables().values():
        for _, length, what, how_far, _ in rows:
            if lesson := re.match(LINK, what):
                whole = minutes(lesson[1])
                assert int(length) == whole if how_far == "whole" else int(length) < whole, what


def test_headings_in_the_guides_tables_are_headings_of_that_lesson():
    checked = 0
    for line in read(GUIDE).splitlines():
        if line[:1] == "|" and (lesson := re.search(LINK, line)):
            named = in_italics(line)
            assert [one for one in named if one not in headings(lesson[1])] == [], line
            checked += len(named)
    assert checked > 20


def test_the_ways_through_the_lessons_add_up():
    rows = re.findall(r"^\| [\w ]+ \| (\d\d(?:, \d\d)+) \| (\d+) \|$", read(GUIDE), re.MULTILINE)
    assert len(rows) == 3
    for lessons, total in rows:
        assert sum(minutes(number) for number in lessons.split(", ")) == int(total), lessons


# -------------------------------------------------------------------------------------------------------- the scripts


def scripts():
    """Return each lesson's script by its number: (title, text)."""
    found = re.findall(r"^## (\d\d) (.*?)$(.*?)(?=^## |\Z)", read(SCRIPTS), re.MULTILINE | re.DOTALL)
    return {number: (title, text) for number, title, text in found}


def test_every_lesson_has_a_script():
    assert list(scripts()) == sorted(scripts())
    assert [
        number for number in LESSONS if number <= "14" and number not in scripts()
    ] == []  # those added later need none


@pytest.mark.parametrize("number", scripts())
def test_a_script_fits_its_lesson(number):
    title, text = scripts()[number]
    assert NOTEBOOKS[number].cells[0].source.splitlines()[0] == f"# {title}"
    assert re.findall(LINK, text) == [number] and f", {minutes(number)} minutes" in text
    parts = re.findall(r"^- \*\*(.*?):\*\*", text, re.MULTILINE)
    assert parts == ["Open with", "Show of hands", "The surprise", "Where they stall", "Close", "Exercises"]
    assert [one for one in in_italics(text) if one not in headings(number)] == []


@pytest.mark.parametrize("number", scripts())
def test_a_vote_is_taken_where_the_lesson_asks_for_a_prediction(number):
    (vote,) = re.findall(r"^- \*\*Show of hands:\*\*(.*?)(?=^- )", scripts()[number][1], re.MULTILINE | re.DOTALL)
    under = in_italics(vote)
    assert under and [one for one in under if "predict" not in headings(number)[one]] == []


@pytest.mark.parametrize("number", scripts())
def test_a_script_closes_in_three_sentences_and_times_each_exercise(number):
    text = scripts()[number][1]
    (close,) = re.findall(r"^- \*\*Close:\*\* \"(.*?)\"$", text, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"[.?!](?:\s|$)", close)) == 3, close
    planned = re.findall(r"(\d): (\d+) minutes", text.partition("**Exercises:**")[2])
    exercises = lesson_files.exercises(NOTEBOOKS[number])
    assert [int(which) for which, _ in planned] == [one.number for one in exercises]
    assert sum(int(length) for _, length in planned) < minutes(number) / 2 + 5


# ------------------------------------------------------------------------------------------------------------ the exam


def questions():
    """Return (number, lesson, text with its answer) of each question."""
    return re.findall(r"^### (\d+)\. [^\n]* \(lesson (\d\d)\)$(.*?)(?=^##|\Z)", read(EXAM), re.MULTILINE | re.DOTALL)


def test_there_are_twenty_questions_in_the_order_of_the_lessons_each_with_a_folded_answer():
    found = questions()
    assert [int(number) for number, _, _ in found] == list(range(1, 21))
    lessons = [lesson for _, lesson, _ in found]
    assert lessons == sorted(lessons) and set(lessons) <= set(LESSONS)
    for number, _, text in found:
        asked, _, answer = text.partition("<details><summary>Answer</summary>")
        assert "?" in asked and answer.strip().endswith("</details>"), number


@pytest.mark.parametrize("number", [number for number, _, text in questions() if "```python" in text])
def test_the_code_below_an_answer_prints_it(number, capsys):
    text = next(text for found, _, text in questions() if found == number)
    (code,) = lesson_files.fenced(text)
    exec(compile(code, f"question {number}", "exec"), {})
    printed = capsys.readouterr().out.split()
    answer = text.partition("<details>")[2].partition("```")[0]
    assert printed and [one for one in printed if not re.search(rf"(?<![\w.,]){re.escape(one)}(?![\w])", answer)] == []


# ---------------------------------------------------------------------------------------------------- a lesson, begun


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project with three lessons, in which lesson 99 has been begun."""
    copy = tmp_path_factory.mktemp("a tree")
    for name in ("docs", "helpers", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "lesson_99*"))
    for name in ("conftest.py", "pyproject.toml", "workshop.py"):
        shutil.copy(ROOT / name, copy)
    (copy / "notebooks").mkdir()
    for number in ("00", "13", "14"):
        shutil.copy(LESSONS[number], copy / "notebooks")
    done = python(copy, "-m", "helpers.maintain.new_lesson", "99", "Add the squares")
    assert done.returncode == 0, done.stderr
    assert "notebooks/99-add-the-squares.ipynb" in done.stdout.replace(os.sep, "/")
    return copy


def python(folder, *arguments):
    variables = {**os.environ, "PYTHONPATH": str(folder), "ANYGPU_PROFILE": "preview"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)


def test_a_lesson_from_the_template_keeps_the_rules_and_so_do_its_neighbours(tree):
    (before,), (path,) = ((tree / "notebooks").glob(f"{number}-*") for number in ("14", "99"))
    assert [str(one) for one in rules.problems(before) if one.serious] == []
    draft, short = sorted((one.what for one in rules.problems(path)), key=len, reverse=True)
    assert draft.startswith("note: a draft: a note for the author is left in 8 cells, the first is cell 1;")
    assert short.startswith("note: ") and "words of prose" in short
    last = lesson_files.read(path).cells[-1].source.splitlines()[-1]
    assert last == "[Previous: Compute on any GPU with WebGPU](14-compute-on-any-gpu.ipynb)"


def test_without_its_notes_a_new_lesson_keeps_the_rules_and_gets_its_row_and_column(tree, tmp_path, monkeypatch):
    (path,) = (tree / "notebooks").glob("99-*")
    copy = shutil.copytree(tree / "notebooks", tmp_path / "notebooks") / path.name
    monkeypatch.setattr(lesson_files, "every", lambda folder=copy.parent: sorted(folder.glob("*.ipynb")))
    text = read(ROOT / "README.md").replace("| 99 |", "| 98 |")
    assert "| 99 |" not in docs.with_rows(text)
    notebook = lesson_files.read(copy)
    for cell in notebook.cells:
        cell.source = re.sub("<details><summary>For the author.*?</details>", "", cell.source, flags=re.DOTALL).strip()
    notebook.cells[4].source += "\n\ndevice = opencl.pick_device()"
    copy.write_text(rules.dump(notebook), encoding="utf-8")
    assert [one.what for one in rules.problems(copy) if one.serious or "draft" in one.what] == []
    row = f"| 99 | [Add the squares](notebooks/{path.name}) | add up many squares, and say how much faster "
    assert row + "one way is than another | 30 |\n" in docs.with_rows(text)
    assert on_gpu.lessons()["OpenCL"] == ["99"]


def test_a_lesson_from_the_template_passes_the_linters(tree):
    files = [str(path) for path in tree.glob("**/*99*")]
    assert len(files) == 3
    for check in (["check"], ["format", "--check"]):
        done = python(tree, "-m", "ruff", *check, *files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_lesson_from_the_template_passes_its_own_tests(tree):
    files = [f"tests/{name}.py" for name in ("test_exercises", "test_format", "test_house")]
    done = python(tree, "-m", "pytest", "-q", "--all", "-p", "no:cacheprovider", "-k", "99-add", *files)
    assert done.returncode == 0 and re.search(r"\b1[5-9] passed, \d+ deselected", done.stdout), done.stdout


def test_a_lesson_in_the_middle_is_led_to_from_both_sides(tree, monkeypatch, tmp_path):
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy)
    done = python(copy, "-m", "helpers.maintain.new_lesson", "50", 'Say "hello" to it')
    assert done.returncode == 0, done.stderr
    ends = {path.name[:2]: lesson_files.read(path).cells[-1].source.splitlines()[-1] for path in copy.glob("*/*.ipynb")}
    own = '[{}: Say "hello" to it](50-say-hello-to-it.ipynb)'
    assert ends["14"].endswith(" | " + own.format("Next")) and ends["99"] == own.format("Previous")
    assert "(14-compute-on-any-gpu.ipynb) | [Next: Add the squares](99-" in ends["50"]
    assert "99-" not in ends["14"] and "50-" not in ends["13"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["99"], "A number and a title"), (["9", "Add the squares"], "make no lesson's name"),
     (["99", "Add"], "two words"), (["14", "Add the squares"], "The number 14 is taken: there is")],
)  # fmt: skip
def test_what_cannot_be_a_lesson_is_refused_in_words(arguments, said):
    with pytest.raises(SystemExit, match=said):
        new_lesson.main(arguments)


# ---------------------------------------------------------------------------------------------------------- the habits


def test_the_citation_and_the_changelog_name_the_projects_version():
    citation = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["authors"]
    assert citation["version"] == PROJECT["project"]["version"]
    assert (
        citation["abstract"] == PROJECT["project"]["description"]
        and citation["license"] in PROJECT["project"]["license"]
    )
    changes = read(ROOT / "CHANGELOG.md")
    assert re.findall(r"^## (.*)$", changes, re.MULTILINE)[0] == "Unreleased"
    assert PROJECT["project"]["version"] in changes


@pytest.mark.parametrize("form", FORMS, ids=id_of)
def test_an_issues_form_is_one(form):
    made = yaml.safe_load(read(form))
    assert made["name"] and made["description"] and made["body"]
    asked = [part for part in made["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in asked} <= {"input", "textarea", "checkboxes"}
    assert len({part["id"] for part in asked}) == len(asked) and all(
        part["attributes"].get("label", "x") for part in asked
    )


def test_the_forms_that_contributing_names_are_there_and_ask_for_the_doctors_report():
    ours = [form for form in FORMS if form.name[0].isdigit()]
    names = {form.name: yaml.safe_load(read(form))["name"] for form in ours}
    text = " ".join(read(ROOT / "CONTRIBUTING.md").split())
    assert len(names) == 3 and [name for name in names.values() if f"*{name}*" not in text] == []
    for form in ours:
        assert ("doctor --report report.txt" in read(form)) == ("stumble" not in form.name)


def test_the_hooks_run_the_linters_in_the_locks_version():
    (repository,) = yaml.safe_load(read(ROOT / ".pre-commit-config.yaml"))["repos"]
    locked = re.search(r"^ruff==([\d.]+)", read(ROOT / "requirements" / "test.txt"), re.MULTILINE)[1]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        if "additional_dependencies" in hook:
            assert hook["additional_dependencies"] == [f"ruff=={locked}"]
        else:
            check_call(hook["entry"].removeprefix("python workshop.py ").split())


def test_the_development_container_takes_a_python_that_fits_and_sets_the_project_up():
    made = json.loads(read(ROOT / ".devcontainer" / "devcontainer.json"))
    python_version = re.fullmatch(r"python:(3\.\d+)-bookworm", made["image"])[1]
    assert python_version == "3.12" and PROJECT["project"]["requires-python"] == ">=3.11,<3.14"
    assert made["postCreateCommand"].startswith("python3 workshop.py ")
    check_call(made["postCreateCommand"].split()[2:])
    assert set(made["containerEnv"]) == {"ANYGPU_PROFILE"}
