"""The exam's code, the project's version and its hooks: what a page or a form says of them is so."""

import re
import tomllib

import pytest
import yaml

from helpers import ROOT
from helpers.commands import lesson_files

EXAM = ROOT / "docs" / "teaching" / "exam.md"
SCRIPTS = re.split(r"^## ", (EXAM.parent / "lessons.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def code_of_the_exam():
    """Return (code, answer) of each question that has code under its folded answer."""
    questions = re.findall(r"^### \d+\. .*?(?=^##|\Z)", EXAM.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    answers = [question.partition("<details>")[2] for question in questions if "```python" in question]
    return [(lesson_files.code_blocks(answer)[0], answer.partition("```")[0]) for answer in answers]


@pytest.mark.parametrize(("code", "answer"), code_of_the_exam())
def test_the_code_below_an_answer_prints_it(code, answer, capsys):
    exec(compile(code, "the exam", "exec"), {})
    printed = capsys.readouterr().out.split()
    assert printed
    assert [part for part in printed if not re.search(rf"(?<![\w.,]){re.escape(part)}(?!\w)", answer)] == []


def headings(lesson):
    """Return the headings of a lesson, without their signs."""
    cells = lesson_files.read(lesson).cells
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return re.findall(r"^#+ (.*)", texts, re.MULTILINE)


@pytest.mark.parametrize("lesson", lesson_files.every(), ids=lambda lesson: lesson.stem)
def test_the_script_of_a_lesson_has_its_exercises_and_headings(lesson):
    scripts = [script for script in SCRIPTS if f"/{lesson.name})" in script]
    assert len(scripts) == 1, f"docs/teaching/lessons.md has {len(scripts)} scripts for {lesson.name}, not one"
    (script,) = scripts
    minutes = re.search(r"Exercises: ([^.;]*)", script.partition(f"/{lesson.name})")[2])[1]
    exercises = [heading for heading in headings(lesson) if heading.startswith("Exercise ")]
    required = [heading for heading in exercises if "optional" not in heading]
    assert len(re.findall(r"\d+", minutes)) == len(required), f"minutes in docs/teaching/lessons.md: {minutes}"
    both = [each for each in lesson_files.every() if f"/{each.name})" in script]  # first and second session
    known = [heading for each in both for heading in headings(each)]
    quoted = re.findall(r"(?<!\*)\*([A-Z][^*\n]*)\*(?!\*)", script)
    gone = [words for words in quoted if not any(f"{heading}:".startswith(f"{words}:") for heading in known)]
    assert gone == [], "docs/teaching/lessons.md quotes headings that the lesson doesn't have"


def test_no_page_names_a_path_of_one_machine():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.*")]:
        found = re.search(r"(?<![\w.~$}])/(?:root|home|work|Users)/(?!learner|name)", page.read_text(encoding="utf-8"))
        assert not found, page.name


def is_author(author):
    """Return whether `author` is a person with both names, or a group with its own: cffconvert refuses a mixture."""
    names = {"name", "family-names", "given-names"} & set(author) if isinstance(author, dict) else set()
    return names in ({"name"}, {"family-names", "given-names"})


def test_the_citation_and_the_changelog_have_the_projects_version():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["authors"] and all(is_author(author) for author in citation["authors"])
    assert citation["license"] in PROJECT["project"]["license"]
    assert PROJECT["project"]["version"] in read("CHANGELOG.md")


def test_the_hooks_run_the_linters_in_the_locks_version():
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    locked = re.search(r"^ruff==([\d.]+)", read("requirements/lock.txt"), re.MULTILINE)[1]
    pinned = [hook["additional_dependencies"] for hook in repository["hooks"] if "additional_dependencies" in hook]
    assert pinned and all(packages == [f"ruff=={locked}"] for packages in pinned)
