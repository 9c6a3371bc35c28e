"""The prepared answers to exercises: each lesson has them, they fit their solutions, and a mistake has one name.

tests/lesson_items.py tries them, in the kernel that runs the lesson: `python3 workshop.py test 04`.
"""

import tomllib

import lesson_items
import pytest
import sample_lesson

from helpers.commands import lesson_files
from helpers.devices import opencl
from helpers.errors import WorkshopError
from helpers.judge import kernel_checks, mistakes

LESSONS = lesson_files.every()


# ------------------------------------------------------------------------------------------ the files


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_each_exercise_has_three_known_mistakes(lesson):
    numbers = [exercise.number for exercise in lesson_files.exercises(lesson_files.read(lesson))]
    prepared = mistakes.read(lesson.stem)
    assert sorted(prepared) == numbers
    counts = {number: len(prepared[number].mistakes) for number in numbers}
    few = {number: count for number, count in counts.items() if count < 3}
    assert few == {}, (
        f"known mistakes by exercise: {few}; add some to lesson_{lesson.stem[:2]}.toml, at least three each"
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_every_prepared_answer_fits_its_solution(lesson):
    prepared = mistakes.read(lesson.stem)
    for exercise in lesson_files.exercises(lesson_files.read(lesson)):
        assert lesson_items.plan_attempts(exercise, prepared[exercise.number])


def test_every_file_of_answers_belongs_to_a_lesson():
    files = mistakes.FOLDER.glob("*.toml")
    notebooks = {number for file in files for number in tomllib.loads(file.read_text(encoding="utf-8"))}
    assert notebooks == {lesson_files.number(lesson) for lesson in LESSONS}


def test_a_file_of_answers_holds_both_sessions(tmp_path):
    file = tmp_path / "lesson_01.toml"
    file.write_text("[01.1.right]\n'a' = 'x = 1'\n[01b.2.mistakes]\n'b'.own_process = true\n'b'.replace = ['1', '2']\n")
    first, second = mistakes.read("01-add-numbers", tmp_path), mistakes.read("01b-time", tmp_path)
    assert mistakes.prepare(first[1].right, "") == [mistakes.Answer("a", "x = 1")]
    assert mistakes.prepare(second[2].mistakes, "x = 1") == [mistakes.Answer("b", "x = 2", True)]
    assert first[1].mistakes == second[2].right == {}


@pytest.mark.parametrize(
    ("table", "meant"),
    [("04b.2.rihgt", "04b.2"), ("4.2.right", "04.1"), ("05.2.right", "04.1"), ("04.x.right", "04.1")],
)
def test_a_table_that_nothing_would_read_is_named_beside_those_that_are_read(table, meant, tmp_path):
    (tmp_path / "lesson_04.toml").write_text(f"[{table}]\n'a' = 'x = 1'\n")
    with pytest.raises(WorkshopError, match=rf"lesson_04.toml: \[{table}\] .*\[{meant}.right\]"):
        mistakes.read("04", tmp_path)


def test_an_error_of_toml_names_its_file_and_line(tmp_path):
    (tmp_path / "lesson_04.toml").write_text("[04.2.right]\n'a' = ['x'\n'b' = 'y'\n")
    with pytest.raises(WorkshopError, match=r"lesson_04.toml: .*line 3"):
        mistakes.read("04", tmp_path)


def test_a_lesson_without_a_file_has_no_prepared_answers(tmp_path):
    assert mistakes.read("02-multiply", tmp_path) == mistakes.read("another-notebook", tmp_path) == {}
    assert mistakes.name_mistake("99.1", "abc") == ""


def test_a_mistake_that_no_longer_fits_its_solution_is_named():
    with pytest.raises(WorkshopError, match=r"lesson_01.toml, 01.2.mistakes, 'old': .*'n - 1'"):
        mistakes.prepare({"old": ["n - 1", "n"]}, "n + 1", "lesson_01.toml, 01.2.mistakes")


@pytest.mark.parametrize("entry", [["n"], ["n", "m", "k"], [["n", "m"], "k"], [["n", 7]], 7, []])
def test_an_entry_of_a_wrong_form_is_named_with_its_file(entry):
    with pytest.raises(WorkshopError, match=r"lesson_01.toml, 01.2.mistakes, 'bad'"):
        mistakes.prepare({"bad": entry}, "n", "lesson_01.toml, 01.2.mistakes")


# ------------------------------------------------------------------------------------------ names of mistakes


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ({"a": {"as_if": "one", "shows": "abc"}}, "one"),
        ({"a": {"as_if": "one", "shows": "abc"}, "b": {"as_if": "another", "shows": "abc"}}, ""),
        ({"a": "code"}, ""),
    ],
)
def test_two_mistakes_that_show_the_same_have_no_name(entries, name, monkeypatch):
    monkeypatch.setattr(mistakes, "read", lambda notebook: {3: mistakes.Prepared(entries, {})})
    assert mistakes.name_mistake("01.3", "abc") == name
    assert mistakes.name_mistake("01.3", "") == mistakes.name_mistake("01.4", "abc") == ""


def test_chance_shows_nothing():
    racing = "__kernel void k(__global const float *x, __global float *out, const int n) { out[0] = x[0]; }"
    assert kernel_checks.fingerprint(opencl.Kernel(racing, "k"), ("float[]",)) == ""


# ------------------------------------------------------------------------------------------ what is tried


def test_a_run_of_one_lesson_tries_each_exercise_untouched_solved_and_once_wrong():
    first, second = lesson_files.exercises(sample_lesson.notebook())
    wrong = {"adds two": ["n + 1", "n + 2"], "adds nothing": ["n + 1", "n + 0"]}
    attempts = lesson_items.plan_attempts(first, mistakes.Prepared(wrong, {}))
    assert [attempt.label for attempt in attempts] == [
        "exercise 1: untouched",
        "exercise 1: adds two",
        "exercise 1: adds nothing",
        "exercise 1: adds two, not graded",
        "exercise 1: the solution",
    ]
    assert [attempt.label for attempt in attempts if not attempt.is_quick] == ["exercise 1: adds nothing"]
    attempts = lesson_items.plan_attempts(second, mistakes.Prepared({}, {"a lambda": "after = lambda n: n - (-1)"}))
    tried = {attempt.answer.name: (attempt.verdict, attempt.is_quick) for attempt in attempts}
    assert tried == {
        "untouched": ("not done yet", True),
        "a lambda": ("right", False),
        "the solution": ("right", True),
    }
