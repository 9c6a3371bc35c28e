"""Begin a lesson from the template, a small lesson that keeps every rule: CONTRIBUTING.md says how to go on.

python -m helpers.maintain.new_lesson 99 "Add the squares"
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from helpers import ROOT
from helpers.commands import lesson_files
from helpers.commands.files import write
from helpers.errors import WorkshopError
from helpers.judge import mistakes
from helpers.maintain import rules

TEMPLATE = Path(__file__).parent / "template"
TITLE = "Verb the noun"  # what the template holds in its place
PLACE_OF_NUMBER = re.compile(r"(?<=lesson[_ ])NN\b|(?<=mistakes/)NN\b|(?<=\n\[)NN\b", re.IGNORECASE)
USAGE = 'Type, for example: python -m helpers.maintain.new_lesson 99 "Add the squares"'
NEXT = """Next:
  1. Put your own text and code into the notebook, a cell at a time; delete the notes for the author.
  2. python3 workshop.py format: without notes it also lists the lesson in README.md and under docs/.
  3. python3 workshop.py store {number}: until then the outputs are the template's.
  4. python3 workshop.py lint {number}, then test --all -k "{number}- or docs".
CONTRIBUTING.md has more."""


def main(arguments: list[str]) -> None:
    """Write the files of a new lesson, print their names and what comes next; end with status 1 if that fails."""
    try:
        if len(arguments) != 2:
            raise WorkshopError("A number and a title are needed.", next=USAGE)
        print(*begin(*arguments), sep="\n")
        print(NEXT.format(number=arguments[0]))
    except WorkshopError as error:
        sys.exit(str(error))


def begin(number: str, title: str) -> list[str]:
    """Copy the template as lesson `number`, lead its neighbours to it, and return the names of the files written.

    Args:
        number: two digits that no lesson has.
        title: a verb and what it is done to.

    Raises:
        WorkshopError: the number or the title cannot be that of a lesson, or the number is taken.
    """
    name = f"{number}-{'-'.join(re.findall('[a-z0-9]+', title.lower()))}"
    if not lesson_files.NAME.fullmatch(name):
        raise WorkshopError(
            f"{number!r} and {title!r} make no lesson's name.",
            "A lesson has a number of two digits and a title of two words or more, in English.",
            USAGE,
        )
    notebook = lesson_files.FOLDER / f"{name}.ipynb"
    places = {
        "lesson.ipynb": notebook,
        "lesson.py": ROOT / "helpers" / "lessons" / f"lesson_{number}.py",
        "mistakes.toml": mistakes.FOLDER / f"{number}.toml",
        "answers.toml": ROOT / "tests" / "answers" / f"{number}.toml",
    }
    others = [path for path in lesson_files.every() if path.name.startswith(number)]
    if taken := [path for path in [*others, *places.values()] if path.exists()]:
        raise WorkshopError(
            f"The number {number} is taken: there is {taken[0].relative_to(ROOT)}.", next="Take another number."
        )
    for source, place in places.items():
        shown = json.dumps(title, ensure_ascii=False)[1:-1]
        text = (TEMPLATE / source).read_text(encoding="utf-8").replace(TITLE, shown)
        write(place, PLACE_OF_NUMBER.sub(number, text))
    there = lesson_files.every()
    at = there.index(notebook)
    changed = there[max(at - 1, 0) : at + 2]
    for path in changed:
        link(path, there)
    return [str(path.relative_to(ROOT)) for path in dict.fromkeys([*places.values(), *changed])]


def link(path: Path, lessons: list[Path]) -> None:
    """Write into the last line of a lesson where the lessons before and after it are."""
    at, notebook = lessons.index(path), lesson_files.read(path)
    neighbours = [("Previous", lessons[max(at - 1, 0) : at]), ("Next", lessons[at + 1 : at + 2])]
    line = " | ".join(f"[{which}: {title_of(one)}]({one.name})" for which, found in neighbours for one in found)
    *text, _ = notebook.cells[-1].source.splitlines()
    notebook.cells[-1].source = "\n".join([*text, line])
    write(path, rules.dump(notebook))


def title_of(path: Path) -> str:
    """Return a lesson's title, the first line of its first cell."""
    return lesson_files.read(path).cells[0].source.splitlines()[0].removeprefix("# ")


if __name__ == "__main__":
    main(sys.argv[1:])
