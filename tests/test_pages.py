"""README, the pages under docs/ and the lessons: links, commands and blocks of code that a reader follows."""

import argparse
import ast
import functools
import os
import re
import shlex
import subprocess
import sys

import mistune
import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager

import workshop
from helpers import ROOT, commands, doctor, variables
from helpers.commands import address, lesson_files
from helpers.devices import host

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("[a-z]*/README.md"))]
FILES = [*PAGES, *lesson_files.every()]


def id_of(path):
    return path.relative_to(ROOT).as_posix()


def text_of(path):
    """Return a file's Markdown; of a notebook that of its cells."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in lesson_files.read(path).cells if cell.cell_type == "markdown")


@functools.cache
def tokens(path):
    """Return mistune's tokens of a file, each before those in it."""

    def flat(items):
        return [token for item in items for token in (item, *flat(item.get("children", [])))]

    return flat(mistune.create_markdown(renderer="ast", plugins=["table", "url"])(text_of(path)))


def blocks(path):
    """Return (language, code) of each block of code of a page."""
    found = [token for token in tokens(path) if token["type"] == "block_code"]
    return [((token.get("attrs") or {}).get("info", ""), token["raw"]) for token in found]


# -------------------------------------------------------------------------------------------------------- the links


def in_html(path, attributes):
    html = "".join(token["raw"] for token in tokens(path) if token["type"] in ("block_html", "inline_html"))
    return re.findall(rf"\b(?:{attributes})=[\"']([^\"']+)", html)


def links(path):
    """Return the targets of a file's links and images, without those that lead outside."""
    found = [token["attrs"]["url"] for token in tokens(path) if token["type"] in ("link", "image")]
    return [target for target in [*found, *in_html(path, "href|src")] if not re.match(r"[a-z][a-z+.-]+:", target)]


@functools.cache
def anchors(path):
    """Return what a link to this file may have after its #: headings, as GitHub names them, and ids in HTML tags."""

    def words(token):
        return token.get("raw", "") + "".join(map(words, token.get("children", [])))

    titles = [words(token).strip().lower() for token in tokens(path) if token["type"] == "heading"]
    slugs = [re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles]
    again = [f"{slug}-{slugs[:number].count(slug)}" for number, slug in enumerate(slugs) if slug in slugs[:number]]
    return {*slugs, *again, *in_html(path, "id|name")}


def dead_links(path):
    dead = []
    for target in links(path):
        place, _, anchor = target.partition("#")
        file = path.parent / place if place else path
        is_page = file.suffix in (".md", ".ipynb")
        if not file.exists() or (anchor and is_page and not {anchor, anchor.lower()} & anchors(file)):
            dead.append(target)
    return dead


@pytest.mark.parametrize("path", FILES, ids=id_of)
def test_every_link_inside_leads_somewhere(path):
    assert dead_links(path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n## A `b` (c)?\n\n## One\n\n[1](#one) [2](#one-1) [3](#a-b-c) [4](other.md) [5](other.md#here)\n\n"
        "```sh\n[no](link.md)\n```\n\n| [6](gone.md) |\n|---|\n| [7](#gone) |\n\n<a href='away.md'>8</a>\n",
        encoding="utf-8",
    )
    (tmp_path / "other.md").write_text("<a id='here'></a>\n", encoding="utf-8")
    assert dead_links(page) == ["gone.md", "#gone", "away.md"]


# -------------------------------------------------------------------------------------------- commands and blocks


def typed(text):
    """Return the arguments of each call of the workshop in a text: after `workshop.py` or `-m helpers`."""
    calls = re.findall(r"(?:(?:python3?|py) workshop\.py|-m helpers)[ \t]+([^`\n#|)(;]*)", text)
    return [shlex.split(call) for call in calls if call.strip()]


def check_call(arguments):
    """Let the real parsers read the arguments of a call of the workshop."""
    own = workshop.own_options()
    own.exit_on_error = False
    _, rest = own.parse_known_args(arguments)
    if not rest or rest[0] in ("-h", "--help", "COMMAND"):
        return
    assert rest[0] in commands.COMMANDS, f"there is no command {rest[0]}"
    module = commands.load(rest[0])
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    _, unknown = parser.parse_known_args(rest[1:])
    assert getattr(module, "PASSES_ON", False) or unknown == [], f"{rest[0]} does not take {unknown}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=id_of)
def test_every_command_and_option_that_a_page_names_exists(page):
    for arguments in typed(text_of(page)):
        words = [word.replace("COMMAND", "doctor").replace("NN", "01") for word in arguments]
        words = [word for word in words if not word.startswith("[")]
        try:
            check_call([word.strip(",.:") for word in words if re.match(r"[\w./-]", word)])
        except SystemExit:
            pytest.fail(f"{page.name}: workshop.py {' '.join(arguments)} is not understood")


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_every_block_of_code_can_be_read_by_what_it_is_for(page):
    for language, code in blocks(page):
        if language == "python":
            ast.parse(TransformerManager().transform_cell(code))
        elif language == "yaml":
            yaml.safe_load(code)
        elif language in ("sh", "bash") and os.name == "posix":
            done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{code}\n{done.stderr}"


# ------------------------------------------------------------------------------------------------------ the variables


def test_the_page_of_commands_has_the_variables_that_people_set_and_no_other_file_names_one():
    rows = ["| variable | what it means | if unset |", "|---|---|---|"]
    set_by_people = {name: about for name, about in variables.TABLE.items() if about.set_by == "you"}
    rows += [f"| `{name}` | {about.meaning} | {about.default} |" for name, about in set_by_people.items()]
    table = "\n".join(rows)
    assert text_of(ROOT / "docs" / "commands.md").endswith(f"\n\n{table}\n")
    code = [path for path in ROOT.glob("helpers/**/*.py") if path.name != "variables.py"]
    named = {path.name: re.findall(r"[\"']ANYGPU_[A-Z_]+[\"']", path.read_text(encoding="utf-8")) for path in code}
    assert {name: found for name, found in named.items() if found} == {}
    files = [path for pattern in ("helpers/**/*.*", "docs/**/*.md", "binder/*", "*.md") for path in ROOT.glob(pattern)]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in ("", ".py", ".md", ".toml")]
    assert set(re.findall(r"\bANYGPU_[A-Z_]+", "\n".join(texts))) == set(variables.TABLE)


# ------------------------------------------------------------------------------------------------ the known failures


def test_the_page_has_the_errors_that_the_doctor_knows_under_their_own_words():
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    headings = dict(re.findall(r'^<a id="([a-z0-9-]+)"></a>\n\n### `(.+)`$', page, re.MULTILINE))
    known = {failure.id: failure.error for failure in doctor.KNOWN.values() if failure.error}
    assert headings == known and len(known) > 10


# What somebody would have to replace before the command runs: a word in capitals, one in angle brackets, an ellipsis.
# The name of a variable is none: it stands before "=" or after "$", or has an underscore.
PLACEHOLDER = r"(?<![\w$-])(?!OUT\b|LOGNAME\b)[A-Z]{4,}\b(?![=_])|<[a-z-]+>|\.\.\.|/path/to"


def test_no_command_of_a_page_holds_a_placeholder():
    held = []
    for page in sorted(ROOT.glob("docs/**/*.md")):
        for language, code in blocks(page):
            if language in ("sh", "powershell", "bash"):
                lines = [line.partition("  #")[0] for line in code.splitlines()]
                held += [f"{page.name}: {line}" for line in lines if re.search(PLACEHOLDER, line)]
    assert held == []


# --------------------------------------------------------------------------------------------------- the address


def test_the_pages_have_the_address_of_the_project_s_file():
    outdated = [path.name for path in address.find_outdated()]
    assert outdated == [], "python3 workshop.py lint --fix brings them up to date"


def test_what_needs_the_address_is_made_from_it_or_left_out(monkeypatch):
    page = (
        '<!-- address -->\n<!-- end of address -->\n<!-- folder -->\n<!-- end of folder -->\nREPOSITORY = ""  # where\n'
    )
    published = {"Repository": "https://github.com/some-one/course", "Book": "https://some-one.github.io/course"}
    monkeypatch.setattr(host, "addresses", lambda: published)
    text = address.fill_in(page)
    tag = host.release_tag()
    assert text.count("](https://some-one.github.io/course") == 2 and f"/v2/gh/some-one/course/{tag}?" in text
    assert text.count(f"](https://github.com/some-one/course/archive/refs/tags/{tag}.zip)") == 1  # the folder
    assert f'\nREPOSITORY = "{published["Repository"]}"  # where' in text
    monkeypatch.setattr(host, "addresses", dict)
    left = address.fill_in(text)
    assert "](" not in left and 'REPOSITORY = ""' in left and "\nGet the workshop's folder" in left


# ------------------------------------------------------------------------------------------------ Colab's first cell

FIRST_CELL = next(code for language, code in blocks(ROOT / "docs" / "hosted.md") if language == "python")


@pytest.mark.skipif(os.name != "posix", reason="Colab and Kaggle run on Linux")
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_the_first_cell_leaves_the_notebook_in_the_course_and_prints_the_doctors_report(tmp_path, times):
    (tmp_path / "tools").mkdir()
    git = """for folder; do :; done
mkdir -p "$folder/notebooks" "$folder/helpers"
touch "$folder/workshop.py" "$folder/helpers/__init__.py"
echo 'import sys; print("REPORT", sys.argv[1:])' > "$folder/helpers/__main__.py"
"""
    (tmp_path / "tools" / "git").write_text(f"#!/bin/sh\n{git}", encoding="utf-8")
    (tmp_path / "tools" / "git").chmod(0o755)
    after = "\nimport helpers\nprint(os.getcwd(), helpers.__file__)\n"
    done = subprocess.run(
        [sys.executable, "-c", (FIRST_CELL + after) * times], cwd=tmp_path, capture_output=True, text=True,
        env={"PATH": f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}"}, timeout=60, check=True,
    )  # fmt: skip
    course = tmp_path / "any-gpu-workshop"
    seen = ["REPORT ['doctor']", "", f"{course / 'notebooks'} {course / 'helpers' / '__init__.py'}"]
    assert done.stdout.splitlines() == seen * times


def test_the_first_cell_installs_what_the_lessons_import():
    given = set(ast.literal_eval(re.search(r"^modules = (\{.*?\})$", FIRST_CELL, re.MULTILINE)[1]))
    given |= set(ast.literal_eval(re.search(r"for name in (\(.*?\))", FIRST_CELL)[1]))
    theirs = {"jupyterlab", "ipykernel", "nbclient", "nbconvert", "nbformat", "numpy", "matplotlib", "keras", "jax"}
    theirs |= {"tqdm", "packaging", "threadpoolctl"}  # Colab's image has them
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text_of(ROOT / "pyproject.toml"), re.MULTILINE | re.DOTALL)[1]
    needed = set(re.findall(r"^ +\"([a-z0-9-]+)", listed, re.MULTILINE))
    names = {"pocl-binary-distribution": "pyopencl", "libclang": "clang"}
    assert {names.get(package, package) for package in needed - theirs} - given == set()
