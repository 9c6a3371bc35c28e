"""The learner's own copies: without outputs, brought up to date, and nothing that was written there is ever lost."""

import json

import pytest
import sample_lesson

from helpers.commands import lab, lesson_files, my_lessons


@pytest.fixture
def folders(tmp_path):
    """A folder with two lessons, and the one where their copies shall be."""
    (tmp_path / "notebooks").mkdir()
    for name in ("01-add-numbers", "01b-find-limits"):
        sample_lesson.save(tmp_path / "notebooks", name=name)
    return tmp_path / "notebooks", tmp_path / "my-lessons"


def change(path, **changes):
    """Change the first code cell of a notebook."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code").update(changes)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def everything(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_every_lesson_has_a_copy_that_shows_no_output(folders):
    lessons, own = folders
    assert my_lessons.update(lessons, own) == []
    assert [path.name for path in lesson_files.every(own)] == [path.name for path in lesson_files.every(lessons)]
    for path in lesson_files.every(own):
        copy, lesson = lesson_files.read(path), lesson_files.read(lessons / path.name)
        assert [cell.source for cell in copy.cells] == [cell.source for cell in lesson.cells]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in copy.cells)
        assert copy.metadata.kernelspec == lesson.metadata.kernelspec
    made = everything(own)
    change(lessons / "01-add-numbers.ipynb", outputs=[], execution_count=9)  # stored anew: no other edition
    assert my_lessons.update(lessons, own) == [] and everything(own) == made


@pytest.mark.parametrize("work", [{"source": "my = 1"}, {"execution_count": 1}])
def test_what_was_edited_or_run_stays_and_a_new_edition_is_laid_beside_it_and_told_once(folders, work):
    lessons, own = folders
    my_lessons.update(lessons, own)
    change(own / "01-add-numbers.ipynb", **work)
    begun = everything(own)
    change(lessons / "01-add-numbers.ipynb", source="better = 1")
    (message,) = my_lessons.update(lessons, own)
    (newer,) = everything(own).keys() - begun.keys()
    assert newer in message and "better = 1" in everything(own)[newer]
    assert everything(own).items() > begun.items()
    change(own / newer, source="mine again")
    after = everything(own)
    assert my_lessons.update(lessons, own) == [] and everything(own) == after


def test_what_was_not_touched_follows_the_lesson_and_what_is_no_copy_is_left_alone(folders):
    lessons, own = folders
    my_lessons.update(lessons, own)
    foreign = {"01b-find-limits.ipynb": "no notebook", "notes.txt": "mine"}
    for name, text in foreign.items():
        (own / name).write_text(text)
    for path in lesson_files.every(lessons):
        change(path, source="better = 1")
    assert my_lessons.update(lessons, own) == []
    assert "better = 1" in everything(own)["01-add-numbers.ipynb"] and everything(own).items() > foreign.items()
    (own / "01-add-numbers.ipynb").unlink()  # the way to begin again
    assert my_lessons.update(lessons, own) == [] and "better = 1" in everything(own)["01-add-numbers.ipynb"]


def test_where_nothing_can_be_written_the_lesson_itself_opens_or_the_copy_that_is_there(folders, monkeypatch, capsys):
    def refuse():
        raise PermissionError(13, "Permission denied")

    lessons, own = folders
    first = lesson_files.every(lessons)[0]
    monkeypatch.setattr(my_lessons, "update", refuse)
    monkeypatch.setattr(my_lessons, "FOLDER", own)
    assert lab.own_copy(first) == first
    own.mkdir(exist_ok=True)
    (own / first.name).write_text("what a learner wrote")
    assert lab.own_copy(first) == own / first.name
    assert capsys.readouterr().out.count("Permission denied") == 2
