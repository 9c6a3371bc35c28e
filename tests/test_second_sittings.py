"""Second sittings, called NNb-..., are known wherever lessons are known by their numbers."""

import pytest
import sample_lesson

from helpers.commands import book, classroom, lesson_files, lesson_rules

NAMES = ("01-add-numbers", "01b-find-limits", "02-add-letters", "02b-add-words")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with four lessons, two of them second sittings, in the place of notebooks/."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    for name in NAMES:
        sample_lesson.save(notebooks, name=name)
    for module, constant, value in ((lesson_files, "FOLDER", notebooks),):
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(lesson_files.every, "__defaults__", (notebooks,))
    monkeypatch.setattr(lesson_files.find, "__defaults__", ((), notebooks))
    return notebooks


def test_the_rules_take_them_as_lessons_and_as_neighbours(folder):
    (path,) = lesson_files.find(["01b"])
    problems = [problem.what for problem in lesson_rules.problems(path)]
    assert not [what for what in problems if "called" in what]
    assert [name for name in NAMES if any(f"({name}.ipynb)" in what for what in problems)] == [NAMES[0], NAMES[2]]


def test_the_class_and_the_book_get_them(folder, tmp_path):
    classroom.write_bundle(lesson_files.every(), tmp_path / "class")
    for name in NAMES:
        assert (tmp_path / "class" / "students" / "notebooks" / f"{name}.ipynb").is_file()
        assert (tmp_path / "class" / "course" / "source" / name / f"{name}.ipynb").is_file()
    page = book.lesson(folder / f"{NAMES[1]}.ipynb", sample_lesson.notebook(), [])
    assert "lab 01b`" in page.cells[0].source
    front = book.front_page({path: lesson_files.read(path) for path in lesson_files.every()})
    assert "\n01b Add the numbers <notebooks/01b-find-limits>\n" in front
