"""The checks of the checks: each accepts its solution, and refuses the untouched exercise and each known mistake.

Every answer of a lesson is tried in one kernel, which runs the cells that the exercises build on and no other. A
learner's kernel is judged in a process of its own; of the answers here only what may crash or never end is. Notebooks
run as they are handed out (nbval) and solved (test_browser) judge as a learner's do.
"""

import copy
import functools
import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import sample_lesson
from nbformat import v4

from helpers.commands import execute, lesson_files, lesson_rules
from helpers.devices import opencl
from helpers.errors import WorkshopError
from helpers.judge import kernel_checks, mistakes
from helpers.judge.checks import Verdict

RIGHT_ANSWERS = Path(__file__).parent / "answers"
LESSONS = lesson_files.every()
UNTOUCHED, SOLUTION = "untouched", "the solution"
VERDICTS = tuple(verdict.value for verdict in Verdict)
CELL_SECONDS = 600  # against hanging
SETTINGS = """\
import os as _os
_os.environ['ANYGPU_GRADE'] = '{graded:d}'
_os.environ['ANYGPU_JUDGE_IN_SAME_PROCESS'] = '{same_process:d}'"""


@dataclass(frozen=True)
class Attempt:
    """One answer to an exercise and what its check said to it."""

    exercise: int
    name: str  # of the wrong or right answer
    verdict: str  # that the check should give, one of VERDICTS
    graded: bool
    answer: object  # the executed cells
    check: object
    as_if: str = ""  # the name of the mistake that a learner is told

    def problem(self):
        """Return why the check (or the answer) is not as it should be, None if all is well."""
        who = f"exercise {self.exercise}, {self.name}, {'graded' if self.graded else 'not graded'}: "
        if raised := execute.errors(self.answer):
            return who + f"the answer itself raised {raised[0].ename}, before any check"
        if stderr := execute.text(self.answer, "stderr") + execute.text(self.check, "stderr"):
            return who + f"wrote to standard error: {stderr[:200]}"
        if self.check.execution_count is None:
            return who + "was never reached"
        raised = execute.errors(self.check)
        expected = ["CheckFailed"] if self.graded and self.verdict != "right" else []
        actual = [error.ename for error in raised]
        text = "\n".join([execute.text(self.check), *(error.evalue for error in raised)])
        if expected and text.startswith("right"):
            return who + f"the check calls this wrong answer right; give it a case that tells them apart: {text!r}"
        if actual != expected:
            return who + f"expected {expected or 'no error'}, actual {actual or 'no error'}: {text!r}"
        verdicts = [line for line in text.splitlines() if line.startswith(VERDICTS)]
        if len(verdicts) != 1 or not verdicts[0].startswith(self.verdict):
            return who + f"expected one verdict that begins with {self.verdict!r}, actual {text!r}"
        named = " ".join(text.split()).partition("It is as if ")[2]
        if named != (f"{self.as_if}." if self.as_if else ""):
            return who + f"expected the name {self.as_if!r}, actual {named!r}"
        return None


def needed(notebook):
    """Return the positions of the cells on which exercises, solutions and checks build: no need to train for them."""
    exercises = lesson_files.exercises(notebook)
    own = {position for exercise in exercises for position in (exercise.cell, exercise.check)}
    codes = [code for each in exercises for code in (each.starter, each.solution, notebook.cells[each.check].source)]
    wanted, kept = set().union(*(lesson_rules.names(code)[1] for code in codes)), set()
    for index in reversed(range(len(notebook.cells))):
        cell = notebook.cells[index]
        if cell.cell_type == "code" and index not in own:
            assigned, used = lesson_rules.names(cell.source)
            if assigned & wanted:
                kept.add(index)
                wanted |= used
    return kept


def answers(exercise, wrong, right):
    """Return the answers to an exercise as {name: (verdict, answer)}, the solution last: wrong ones have left traces.

    Args:
        exercise: of `lesson_files.exercises`.
        wrong: the lesson's known mistakes by exercise, as `mistakes.read` returns them.
        right: likewise the right answers that differ from the solution.
    """
    entries = wrong.get(exercise.number, {}), right.get(exercise.number, {})
    known, others = (mistakes.answers(each, exercise.solution) for each in entries)
    return {
        UNTOUCHED: ("not done yet", mistakes.Answer(UNTOUCHED, exercise.starter)),
        **{answer.name: ("not yet", answer) for answer in known},
        **{answer.name: ("right", answer) for answer in others},
        SOLUTION: ("right", mistakes.Answer(SOLUTION, exercise.solution)),
    }


def plan(notebook, wrong, right):
    """Return (a notebook that tries every answer where its exercise stands, the attempts in it).

    Every answer is graded. What a learner sees differs in one branch of the verdict, which a right answer never takes:
    the lesson's first exercise, untouched and with its first mistake, is tried in that way too.
    """
    cells, attempts = [], []
    exercises = {exercise.cell: exercise for exercise in lesson_files.exercises(notebook)}
    checks, kept = {exercise.check for exercise in exercises.values()}, needed(notebook)
    for index, cell in enumerate(notebook.cells[: max(checks, default=0)]):
        if index in kept:
            cells.append(copy.deepcopy(cell))
        if index not in exercises:
            continue
        number, source = exercises[index].number, notebook.cells[exercises[index].check].source
        shown_to_learners = {UNTOUCHED, *itertools.islice(wrong.get(number, {}), 1)} if number == 1 else set()
        for name, (verdict, answer) in answers(exercises[index], wrong, right).items():
            for graded in (True, False) if name in shown_to_learners else (True,):
                attempt = Attempt(
                    number, name, verdict, graded, v4.new_code_cell(answer.code), v4.new_code_cell(source), answer.as_if
                )
                settings = v4.new_code_cell(SETTINGS.format(graded=graded, same_process=not answer.own_process))
                attempts.append(attempt)
                cells += [settings, attempt.answer, attempt.check]
    return v4.new_notebook(cells=cells), attempts


def try_answers(path, wrong, right):
    """Try every answer in one kernel; return (attempts, what stopped the kernel or an ordinary cell)."""
    trial, attempts = plan(lesson_files.read(path), wrong, right)
    outcome = execute.execute(trial, path.parent, "preview", cell_seconds=CELL_SECONDS, allow_errors=True)
    tried = {id(cell) for attempt in attempts for cell in (attempt.answer, attempt.check)}
    stopped = []
    if failure := outcome.failure:
        at = "" if failure.cell is None else lesson_files.label(trial, failure.cell)
        stopped.append(f"{at}: {failure.message}")
    for index, cell in enumerate(trial.cells):
        if id(cell) not in tried and "raises-exception" not in lesson_files.tags(cell):
            stopped += [f"{lesson_files.label(trial, index)}: {error.evalue}" for error in execute.errors(cell)]
    return attempts, stopped


def prepared(lesson):
    """Return (the known mistakes, the right answers) of a lesson, by exercise and name."""
    return mistakes.read(lesson.stem), mistakes.read(lesson.stem, RIGHT_ANSWERS)


@functools.cache
def tried(lesson, every):
    """Return what came of a lesson's answers in this run: of every answer, or of the first mistake of each exercise."""
    wrong, right = prepared(lesson)
    if not every:
        wrong, right = {number: dict(itertools.islice(entries.items(), 1)) for number, entries in wrong.items()}, {}
    return try_answers(lesson, wrong, right)


def parameters():
    """Yield each answer to each exercise: every run tries it as it was handed out, the solution and one mistake."""
    for lesson in LESSONS:
        wrong, right = prepared(lesson)
        for exercise in lesson_files.exercises(lesson_files.read(lesson)):
            number = exercise.number
            quick = {UNTOUCHED, SOLUTION, *itertools.islice(wrong.get(number, {}), 1)}
            for name in answers(exercise, wrong, right):
                marks = () if name in quick else pytest.mark.slow
                yield pytest.param(lesson, number, name, id=f"{lesson.stem}-{number}-{name}", marks=marks)


def problems(attempts):
    return [problem for problem in (attempt.problem() for attempt in attempts) if problem]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_each_exercise_has_three_known_mistakes(lesson):
    numbers = [exercise.number for exercise in lesson_files.exercises(lesson_files.read(lesson))]
    wrong, right = prepared(lesson)
    assert sorted(wrong) == numbers and right.keys() <= wrong.keys()
    too_few = [f"exercise {number} has {len(wrong[number])}" for number in numbers if len(wrong[number]) < 3]
    assert too_few == [], "each exercise needs three known mistakes"


def test_every_file_of_answers_belongs_to_a_lesson():
    files = [*mistakes.FOLDER.glob("*"), *RIGHT_ANSWERS.glob("*")]
    notebooks = {number for file in files for number in tomllib.loads(file.read_text(encoding="utf-8"))}
    assert notebooks <= {lesson.stem.partition("-")[0] for lesson in LESSONS}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_nothing_stops_while_answers_are_tried(lesson, request):
    assert tried(lesson, request.config.getoption("--all"))[1] == []


@pytest.mark.parametrize(("lesson", "number", "name"), list(parameters()))
def test_the_check_gives_the_verdict(lesson, number, name, request):
    every = request.config.getoption("--all")
    attempts = [attempt for attempt in tried(lesson, every)[0] if (attempt.exercise, attempt.name) == (number, name)]
    assert attempts
    if wrong := problems(attempts):
        pytest.fail("\n".join(wrong))  # an assertion would show all that an attempt holds above it


# ------------------------------------------------------------------------------------------ names of mistakes


def test_two_mistakes_that_show_the_same_have_no_name(monkeypatch):
    mistake, other = {"as_if": "one", "shows": "abc"}, {"as_if": "another", "shows": "abc"}
    for entries, name in (({"a": mistake}, "one"), ({"a": mistake, "b": other}, ""), ({"a": "code"}, "")):
        monkeypatch.setattr(mistakes, "read", lambda notebook, entries=entries: {3: entries})
        assert mistakes.as_if("01.3", "abc") == name
        assert mistakes.as_if("01.3", "") == mistakes.as_if("01.4", "abc") == ""


def test_chance_shows_nothing():
    racing = "__kernel void k(__global const float *x, __global float *out, const int n) { out[0] = x[0]; }"
    assert kernel_checks.fingerprint(opencl.Kernel(racing, "k"), ("float[]",)) == ""


# ------------------------------------------------------------------------------------------ the harness can fail

WRONG = {
    1: {"adds two": ["n + 1", "n + 2"], "adds nothing": ["n + 1", "n + 0"]},
    2: {"right for 1 only": ["1 + n", "2 * n"]},
}
RIGHT = {2: {"a lambda": "after = lambda n: n - (-1)"}}


def sample(folder, judge=sample_lesson.HELPER):
    cells = sample_lesson.cells()
    next(cell for cell in cells if cell.source == sample_lesson.HELPER).source = judge
    return sample_lesson.save(folder, sample_lesson.notebook(cells))


def complaints(path, wrong=WRONG, right=RIGHT):
    attempts, stopped = try_answers(path, wrong, right)
    return problems(attempts), stopped


def test_good_checks_are_not_complained_of(tmp_path):
    path = sample(tmp_path)
    attempts, stopped = try_answers(path, WRONG, RIGHT)
    assert (problems(attempts), stopped) == ([], [])
    both = ["untouched", "adds two"]
    assert [attempt.name for attempt in attempts if attempt.exercise == 1 and not attempt.graded] == both
    assert [attempt.name for attempt in attempts if attempt.exercise == 2 and attempt.graded] == [
        "untouched", "right for 1 only", "a lambda", "the solution"
    ]  # fmt: skip


def test_a_check_that_accepts_everything_is_found(tmp_path):
    found, stopped = complaints(sample(tmp_path, "def judge(function):\n    print('right')"))
    assert len(found) == 7 and stopped == []
    assert "exercise 1, adds two, graded: the check calls this wrong answer right" in found[2]


def test_an_answer_that_ends_the_kernel_is_found(tmp_path):
    deadly = {1: {"deadly": ["return n + 1", "import os; os._exit(9)"]}}
    found, stopped = complaints(sample(tmp_path), deadly, {})
    assert "never reached" in found[-1]
    assert "kernel ended" in stopped[0]


def test_a_mistake_that_no_longer_fits_its_solution_is_named(tmp_path):
    with pytest.raises(WorkshopError, match="holds no 'n - 1'"):
        try_answers(sample(tmp_path), {1: {"old": ["n - 1", "n"]}}, {})


def test_only_answers_that_can_neither_crash_nor_run_for_ever_are_judged_in_the_kernel_itself(tmp_path):
    wrong = {1: {name: ["n + 1", f"n + {number}"] for number, name in enumerate(("first", "second", "third"), 2)}}
    wrong[1]["third"] = {"replace": wrong[1]["third"], "own_process": True}
    trial, attempts = plan(lesson_files.read(sample(tmp_path)), wrong, {})
    settings = [cell.source for cell in trial.cells if cell.source.startswith("import os as _os")]
    same = [text.endswith("IN_SAME_PROCESS'] = '1'") for text in settings]
    assert {each.name for each in itertools.compress(attempts, same)} == {UNTOUCHED, "first", "second", SOLUTION}


def test_a_file_of_answers_holds_both_sittings(tmp_path):
    file = tmp_path / "01.toml"
    file.write_text("[01.1]\n'a' = 'x = 1'\n[01b.2]\n'b'.own_process = true\n'b'.replace = ['1', '2']\n")
    assert mistakes.answers(mistakes.read("01-add-numbers", tmp_path)[1], "") == [mistakes.Answer("a", "x = 1")]
    assert mistakes.answers(mistakes.read("01b-time", tmp_path)[2], "x = 1") == [mistakes.Answer("b", "x = 2", True)]
    assert mistakes.read("02-multiply", tmp_path) == mistakes.read("another-notebook", tmp_path) == {}
