"""Begin a lesson from the template, a small lesson that keeps every rule: docs/write-a-lesson.md says how to go on."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from helpers import ROOT
from helpers.commands import lesson_files, lesson_rules
from helpers.commands.files import short, write
from helpers.errors import WorkshopError
from helpers.judge import mistakes

if TYPE_CHECKING:
    from nbformat import NotebookNode

TEMPLATE = Path(__file__).parent / "template"
TITLE = "Verb the noun"  # what the template holds in its place
LINKS = "LINKS"  # stands where the new lesson links its neighbours
PLACE_OF_NUMBER = re.compile(r"(?<=lesson[_ ])NN\b|(?<=mistakes/)NN\b|(?<=\n\[)NN\b", re.IGNORECASE)
NEXT = """Next:
  1. Put your own text and code into the notebook, a cell at a time; delete the notes for the author.
  2. Link it after the recap of the lessons beside it, and list it in README.md.
  3. python3 workshop.py format, then store {number}: until then it has no outputs.
  4. python3 workshop.py lint {number}, then test {number}, as often as you change something.
docs/write-a-lesson.md has more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to `parser`."""
    parser.add_argument("number", metavar="NUMBER", help="two digits that no lesson has, such as 99")
    parser.add_argument("title", metavar="TITLE", help='a verb and what it is done to, such as "Add the squares"')


def run(args: argparse.Namespace) -> int:
    """Write the files of a new lesson, print their names and what comes next, and return 0."""
    print(*map(short, begin(args.number, args.title)), sep="\n")
    print(NEXT.format(number=args.number))
    return 0


def begin(number: str, title: str) -> list[Path]:
    """Copy the template as lesson `number`, and return the files written.

    Raises:
        WorkshopError: the number or the title cannot be that of a lesson, or the number is taken.
    """
    name = f"{number}-{'-'.join(re.findall('[a-z0-9]+', title.lower()))}"
    if number.endswith("b"):
        raise WorkshopError(
            f"{number} is a second sitting.",
            "It is a notebook alone: its checks, mistakes and answers stand in the first sitting's files.",
            f"Copy a notebook as notebooks/{name}.ipynb.",
        )
    if not lesson_files.NAME.fullmatch(name):
        raise WorkshopError(
            f"{number!r} and {title!r} make no lesson's name.",
            "A lesson has a number of two digits and a title of two words or more, in English.",
            'Type, for example: python3 workshop.py new-lesson 99 "Add the squares"',
        )
    places = {
        "lesson.md": lesson_files.FOLDER / f"{name}.ipynb",
        "lesson.py": ROOT / "helpers" / "lessons" / f"lesson_{number}.py",
        "mistakes.toml": mistakes.FOLDER / f"{number}.toml",
        "answers.toml": ROOT / "tests" / "answers" / f"{number}.toml",
    }
    others = [path for path in lesson_files.every() if lesson_files.number(path) == number]
    if taken := [path for path in [*others, *places.values()] if path.exists()]:
        raise WorkshopError(f"The number {number} is taken: there is {short(taken[0])}.", next="Take another number.")
    for source, place in places.items():
        text = PLACE_OF_NUMBER.sub(number, (TEMPLATE / source).read_text(encoding="utf-8")).replace(TITLE, title)
        if place.suffix == ".ipynb":
            text = lesson_rules.dump(notebook(text.replace(LINKS, _links(place.name))))
        write(place, text)
    return list(places.values())


def notebook(text: str) -> NotebookNode:
    """Return the notebook of a text in which each cell begins with a line such as `%% code exercise`: kind and tags."""
    from nbformat import v4

    make = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}
    cells = []
    for cell in re.split(r"^%% ", text, flags=re.MULTILINE)[1:]:
        head, _, source = cell.partition("\n")
        kind, *tags = head.split()
        cells.append(make[kind](source.rstrip(), metadata={"tags": tags}))
    return lesson_rules.normalise(v4.new_notebook(cells=cells))


def _links(name: str) -> str:
    """Return the links to the lessons before and after the one in the file `name`, as Markdown."""
    others = lesson_files.every()
    before, after = ([path for path in others if path.name < name], [path for path in others if path.name > name])
    links = []
    for words, paths in (("Previous", before[-1:]), ("Next", after[:1])):
        for path in paths:
            links.append(f"[{words}: {lesson_files.title(lesson_files.read(path))}]({path.name})")
    return " | ".join(links)
