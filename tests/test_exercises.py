"""The checks of the checks: each accepts its solution, and refuses the untouched exercise and each wrong answer.

Every answer of a lesson is tried in one kernel, which runs the cells that the exercises build on and no other.
"""

import copy
import functools
import importlib.util
import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
import sample_lesson
from nbformat import v4

from helpers.commands import execute, lesson_files
from helpers.errors import WorkshopError
from helpers.maintain import rules

MUTANTS = Path(__file__).parent / "mutants"
LESSONS = lesson_files.every()
UNTOUCHED, SOLUTION = "untouched", "the solution"
VERDICTS = ("right", "not yet", "not done yet")
CELL_SECONDS = 600  # against hanging
FIRST = 1, 1  # wrong and (other) right answers of an exercise that every run tries; `--all` tries all
GRADE = "import os as _os\n_os.environ['ANYGPU_GRADE'] = '1'"
LEARN = "import os as _os\n_os.environ.pop('ANYGPU_GRADE', None)"


@dataclass(frozen=True)
class Attempt:
    """One answer to an exercise and what its check said to it."""

    exercise: int
    name: str  # of the wrong or right answer
    verdict: str  # that the check should give, one of VERDICTS
    graded: bool
    answer: object  # the executed cells
    check: object

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
        return None


def needed(notebook):
    """Return the positions of the cells on which exercises, solutions and checks build: no need to train for them."""
    exercises = lesson_files.exercises(notebook)
    own = {position for one in exercises for position in (one.cell, one.check)}
    codes = [code for one in exercises for code in (one.starter, one.solution, notebook.cells[one.check].source)]
    wanted, kept = set().union(*(rules.names(code)[1] for code in codes)), set()
    for index in reversed(range(len(notebook.cells))):
        cell = notebook.cells[index]
        if cell.cell_type == "code" and index not in own:
            assigned, used = rules.names(cell.source)
            if assigned & wanted:
                kept.add(index)
                wanted |= used
    return kept


def answers(one, wrong, right):
    """Return the answers to an exercise, (name, verdict, code): the solution last, when wrong ones have left traces."""
    mutants = {name: lesson_files.mutate(one.solution, changes) for name, changes in wrong.get(one.number, {}).items()}
    return [
        (UNTOUCHED, "not done yet", one.starter),
        *((name, "not yet", code) for name, code in mutants.items()),
        *((name, "right", code) for name, code in right.get(one.number, {}).items()),
        (SOLUTION, "right", one.solution),
    ]


def plan(notebook, wrong, right):
    """Return (a notebook that tries every answer where its exercise stands, the attempts in it).

    Every answer is graded. What a learner sees differs in one branch of the verdict, which a right answer never takes:
    the untouched exercise and the lesson's first wrong answer are tried in that way too.
    """
    cells, attempts = [], []
    exercises = {one.cell: one for one in lesson_files.exercises(notebook)}
    checks, kept = {one.check for one in exercises.values()}, needed(notebook)
    first_wrong = next(((number, name) for number, named in wrong.items() for name in named), None)
    for index, cell in enumerate(notebook.cells[: max(checks, default=0)]):
        if index in kept:
            cells.append(copy.deepcopy(cell))
        if index not in exercises:
            continue
        one = exercises[index]
        for graded, (name, verdict, code) in itertools.product((True, False), answers(one, wrong, right)):
            if graded or name == UNTOUCHED or (one.number, name) == first_wrong:
                answer, check = v4.new_code_cell(code), v4.new_code_cell(notebook.cells[one.check].source)
                attempts.append(Attempt(one.number, name, verdict, graded, answer, check))
                cells += [v4.new_code_cell(GRADE if graded else LEARN), answer, check]
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


@functools.cache
def prepared(lesson):
    """Return (the wrong answers, the right ones) in the file of a lesson."""
    file = MUTANTS / f"lesson_{lesson.stem[:2]}.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MUTANTS, getattr(module, "RIGHT", {})


@functools.cache
def tried(lesson, every):
    """Return what came of a lesson's answers in this run, of `every` answer or without the slow ones."""
    wrong, right = prepared(lesson)
    if not every:
        wrong, right = (
            {number: dict(itertools.islice(named.items(), first)) for number, named in answers.items()}
            for answers, first in zip((wrong, right), FIRST, strict=True)
        )
    return try_answers(lesson, wrong, right)


def marks(lesson, number, name):
    later = [list(answers.get(number, {}))[first:] for answers, first in zip(prepared(lesson), FIRST, strict=True)]
    return [pytest.mark.slow] if name in itertools.chain(*later) else []


ANSWERS = [
    pytest.param(
        lesson, one.number, name, id=f"{lesson.stem}-{one.number}-{name}", marks=marks(lesson, one.number, name)
    )
    for lesson in LESSONS
    for one in lesson_files.exercises(lesson_files.read(lesson))
    for name, _, _ in answers(one, *prepared(lesson))
]


def problems(attempts):
    return [problem for problem in (attempt.problem() for attempt in attempts) if problem]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_each_exercise_has_three_wrong_answers(lesson):
    numbers = [one.number for one in lesson_files.exercises(lesson_files.read(lesson))]
    wrong, right = prepared(lesson)
    assert sorted(wrong) == numbers and right.keys() <= wrong.keys()
    assert [number for number in numbers if len(wrong[number]) < 3] == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_nothing_stops_while_answers_are_tried(lesson, request):
    assert tried(lesson, request.config.getoption("--all"))[1] == []


@pytest.mark.parametrize(("lesson", "number", "name"), ANSWERS)
def test_the_check_gives_the_verdict(lesson, number, name, request):
    every = request.config.getoption("--all")
    attempts = [one for one in tried(lesson, every)[0] if (one.exercise, one.name) == (number, name)]
    assert attempts and problems(attempts) == []


# ------------------------------------------------------------------------------------------ the harness can fail

WRONG = {
    1: {"adds two": [("n + 1", "n + 2")], "adds nothing": [("n + 1", "n + 0")]},
    2: {"right for 1 only": [("1 + n", "2 * n")]},
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
    assert [one.name for one in attempts if one.exercise == 1 and not one.graded] == both
    assert [one.name for one in attempts if one.exercise == 2 and one.graded] == [
        "untouched", "right for 1 only", "a lambda", "the solution"
    ]  # fmt: skip


def test_a_check_that_accepts_everything_is_found(tmp_path):
    found, stopped = complaints(sample(tmp_path, "def judge(function):\n    print('right')"))
    assert len(found) == 8 and stopped == []
    assert "exercise 1, adds two, graded: the check calls this wrong answer right" in found[1]


def test_a_check_that_refuses_right_answers_is_found(tmp_path):
    found, _ = complaints(sample(tmp_path, sample_lesson.HELPER.replace("== WANTED", "== 0")))
    assert len(found) == 3
    assert "exercise 1, the solution, graded: expected no error, actual ['CheckFailed']" in found[0]
    assert "exercise 2, a lambda, graded" in found[1]


def test_a_check_that_raises_for_a_learner_or_writes_to_standard_error_is_found(tmp_path):
    found, _ = complaints(sample(tmp_path, "def judge(function):\n    raise ValueError(function)"))
    assert len(found) == 11 and "actual ['ValueError']" in found[-1]
    noisy = sample_lesson.HELPER.replace("    verdict =", "    import sys; print('x', file=sys.stderr)\n    verdict =")
    found, _ = complaints(sample(tmp_path, noisy))
    assert len(found) == 11 and "wrote to standard error" in found[-1]


def test_an_answer_that_ends_the_kernel_is_found(tmp_path):
    deadly = {1: {"deadly": [("return n + 1", "import os; os._exit(9)")]}}
    found, stopped = complaints(sample(tmp_path), deadly, {})
    assert "never reached" in found[-1]
    assert "kernel ended" in stopped[0]


def test_a_mutant_that_no_longer_fits_its_solution_is_told(tmp_path):
    with pytest.raises(WorkshopError, match="holds no 'n - 1'"):
        try_answers(sample(tmp_path), {1: {"old": [("n - 1", "n")]}}, {})
