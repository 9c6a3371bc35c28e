"""Pages beside the README, the exam's code and the project's habits: links, commands and versions hold."""

import json
import re
import tomllib

import pytest
import yaml
from test_docs import check_call, typed

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.maintain import docs

EXAM = ROOT / "docs" / "teaching" / "exam.md"
ROOT_PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")]
TEACHERS = [
    ROOT / "docs" / "teaching.md",
    ROOT / "docs" / "teaching" / "lessons.md",
    EXAM,
    *ROOT.glob("classroom/*/*.md"),
]
FORMS = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(path):
    return path.read_text(encoding="utf-8")


def id_of(path):
    return path.name


@pytest.mark.parametrize("page", ROOT_PAGES, ids=id_of)
def test_every_link_of_a_page_beside_the_readme_leads_somewhere(page):
    assert docs.broken(page) == []


@pytest.mark.parametrize("page", [*ROOT_PAGES, *TEACHERS, *FORMS, *ROOT.glob(".github/*.md")], ids=id_of)
def test_every_command_that_a_page_names_exists(page):
    for arguments in typed(read(page)):
        words = [word.replace("NN", "01").replace("WORD", "docs").strip(",.:*") for word in arguments]
        try:
            check_call([word for word in words if re.match(r"[\w./-]", word)])
        except SystemExit:
            pytest.fail(f"{page.name}: workshop.py {' '.join(arguments)} is not understood")


def test_no_page_names_a_path_of_one_machine():
    for page in [*ROOT_PAGES, *TEACHERS, *FORMS]:
        assert not re.search(r"(?<![\w.])/(?:root|home|work|tmp|Users)/|[A-Z]:\\", read(page)), page.name


def code_of_the_exam():
    """Return (code, answer) of each question that has code under its folded answer."""
    questions = re.findall(r"^### \d+\. .*?(?=^##|\Z)", read(EXAM), re.MULTILINE | re.DOTALL)
    answers = [question.partition("<details>")[2] for question in questions if "```python" in question]
    return [(lesson_files.fenced(answer)[0], answer.partition("```")[0]) for answer in answers]


@pytest.mark.parametrize(("code", "answer"), code_of_the_exam())
def test_the_code_below_an_answer_prints_it(code, answer, capsys):
    exec(compile(code, "the exam", "exec"), {})
    printed = capsys.readouterr().out.split()
    assert (
        printed and [part for part in printed if not re.search(rf"(?<![\w.,]){re.escape(part)}(?![\w])", answer)] == []
    )


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
