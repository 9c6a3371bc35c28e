"""A small lesson that keeps every rule, for the tests of the tools that run, store and check lessons."""

from pathlib import Path

import nbformat
from nbformat import v4

from helpers.maintain import rules

WORDS = " ".join(["word"] * 66)
FIGURE = """import matplotlib.pyplot as plt
from IPython.display import display

figure, axes = plt.subplots(figsize=(3, 2))
axes.plot([1, 2])
plt.close(figure)
display(figure, metadata={"image/png": {"alt": "A line that rises from 1 to 2"}})"""
SETUP = 'from helpers.measure import workload\n\nworkload.banner("the device of the test", "MNIST of the test")'
HELPER = """import os

from helpers.judge.checks import CheckFailed


def judge(function):
    answers = [function(n) for n in (1, 2, 5, 100)]
    verdict = "right" if answers == WANTED else "not yet: wrong" if any(answers) else "not done yet"
    if verdict != "right" and os.environ.get("ANYGPU_GRADE") == "1":
        raise CheckFailed(verdict)
    print(verdict)"""


def markdown(text, *tags):
    return v4.new_markdown_cell(text, metadata={"tags": list(tags)} if tags else {})


def code(text, *tags):
    return v4.new_code_cell(text, metadata={"tags": list(tags)} if tags else {})


def exercise(name, solution):
    return [
        markdown(f"## Exercise: {name}\nFill in the function. {WORDS}"),
        code(f"def {name}(n):\n    return 0", "exercise"),
        markdown("<details><summary>Hint</summary>\n\nThink.\n\n</details>"),
        code(f"judge({name})", "check"),
        markdown(
            "<details><summary>Solution</summary>\n\n```python\n" + solution + "\n```\n\n</details>",
            "solution",
        ),
    ]


def cells():
    """Return the cells of a good lesson: 27 of them, two exercises, a figure."""
    body = [
        markdown("# Add the numbers\n\n| Goal | Minutes |\n|---|---|\n| add | 5 |"),
        code(SETUP),
        markdown(f"<details><summary>More</summary>\n\nFolded words. {WORDS}\n\n</details>"),
        code(FIGURE),
        markdown(f"The line rises. {WORDS}"),
        code("WANTED = [2, 3, 6, 101]"),
        code(HELPER),
        *exercise("next_number", "def next_number(n):\n    return n + 1"),
        *exercise("after", "def after(n):\n    return 1 + n"),
    ]
    for number in range(9):
        body.append(markdown(f"Part {number}. {WORDS}") if number % 2 == 0 else code(f"part = {number}\npart"))
    return [*body, markdown(f"## Recap\n{WORDS} {WORDS} {WORDS}")]


def notebook(lesson_cells=None):
    made = v4.new_notebook(cells=cells() if lesson_cells is None else lesson_cells)
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    return rules.normalise(made)


def of(*sources):
    """Return a notebook of code cells alone."""
    return notebook([code(source) for source in sources])


def save(folder: Path, made=None, name="01-add-numbers") -> Path:
    path = folder / f"{name}.ipynb"
    path.write_text(rules.dump(made or notebook()), encoding="utf-8")
    return path


def load(path: Path):
    return nbformat.read(path, as_version=4)
