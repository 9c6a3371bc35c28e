"""The checks of the checks: each solution passes, each untouched exercise and each mutant of a solution is refused."""

import copy
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest
import sample_lesson
from nbformat import v4

from helpers.commands import execute, lesson_files
from helpers.commands.run import BUILD, write
from helpers.maintain import rules

MUTANTS = Path(__file__).parent / "mutants"
LESSONS = lesson_files.every()
CELL_SECONDS = 300  # against hanging
GRADE = "import os as _os\n_os.environ['ANYGPU_GRADE'] = '1'"
LEARN = "import os as _os\n_os.environ.pop('ANYGPU_GRADE', None)"


@dataclass(frozen=True)
class Attempt:
    """One answer to an exercise and what its check said to it."""

    exercise: int
    name: str  # of the mutant, or "untouched"
    graded: bool
    answer: object  # the executed cells
    check: object

    def problem(self):
        """Return why the check (or the answer) is not as it should be, None if all is well."""
        who = f"exercise {self.exercise}, {self.name}, {'graded' if self.graded else 'not graded'}: "
        if raised := execute.errors(self.answer):
            return who + f"the answer itself raised {raised[0].ename}, before any check"
        if noise := execute.text(self.answer, "stderr") + execute.text(self.check, "stderr"):
            return who + f"wrote to standard error: {noise[:200]}"
        if self.check.execution_count is None:
            return who + "was never reached"
        raised, said = execute.errors(self.check), execute.text(self.check)
        if self.graded and [error.ename for error in raised] != ["CheckFailed"]:
            return who + f"was not refused: expected CheckFailed, came {[e.ename for e in raised]}, said {said!r}"
        if not self.graded and raised:
            return who + f"the check raised {raised[0].ename}: {raised[0].evalue}"
        wanted = "not done yet" if self.name == "untouched" else "not yet"
        verdicts = [line for line in said.splitlines() if line.startswith(("right", "not yet", "not done yet"))]
        if not self.graded and (len(verdicts) != 1 or not verdicts[0].startswith(wanted)):
            return who + f"expected one verdict that begins with {wanted!r}, came {said!r}"
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


def plan(notebook, mutants):
    """Return (a notebook that tries every wrong answer where its exercise stands, the attempts in it)."""
    cells, attempts = [v4.new_code_cell(GRADE)], []
    exercises = {one.cell: one for one in lesson_files.exercises(notebook)}
    checks, kept = {one.check for one in exercises.values()}, needed(notebook)
    for index, cell in enumerate(notebook.cells[: max(checks, default=0)]):
        if cell.cell_type != "code" or index in checks:
            continue
        one = exercises.get(index)
        if one is None:
            cells += [copy.deepcopy(cell)] if index in kept else []
            continue
        answers = {"untouched": one.starter}
        for name, replacements in mutants.get(one.number, {}).items():
            answers[name] = lesson_files.mutate(one.solution, replacements)
        for graded in (True, False):
            cells.append(v4.new_code_cell(GRADE if graded else LEARN))
            for name, code in answers.items():
                answer, check = v4.new_code_cell(code), v4.new_code_cell(notebook.cells[one.check].source)
                attempts.append(Attempt(one.number, name, graded, answer, check))
                cells += [answer, check]
    return v4.new_notebook(cells=cells), attempts


def try_wrong_answers(path, mutants):
    """Try every wrong answer in one kernel; return (attempts, what stopped the kernel or an ordinary cell)."""
    trial, attempts = plan(lesson_files.read(path), mutants)
    outcome = execute.execute(trial, path.parent, "preview", cell_seconds=CELL_SECONDS, allow_errors=True)
    tried = {id(cell) for attempt in attempts for cell in (attempt.answer, attempt.check)}
    stopped = (
        [f"{lesson_files.label(trial, outcome.failure.cell)}: {outcome.failure.message}"] if outcome.failure else []
    )
    for index, cell in enumerate(trial.cells):
        may_raise = id(cell) in tried or "raises-exception" in lesson_files.tags(cell)
        stopped += (
            [] if may_raise else [f"{lesson_files.label(trial, index)}: {e.evalue}" for e in execute.errors(cell)]
        )
    return attempts, stopped


def solve(path):
    """Execute a lesson with every exercise solved; return what is wrong with that."""
    notebook = lesson_files.read(path)
    exercises = lesson_files.exercises(notebook)
    for one in exercises:
        notebook.cells[one.cell].source = one.solution
    outcome = execute.execute(notebook, path.parent, "preview", grade=True, cell_seconds=CELL_SECONDS)
    if failure := outcome.failure:
        at = "" if failure.cell is None else lesson_files.label(notebook, failure.cell)
        return [f"{at}: {failure.message}"]
    wrong = [f"{lesson_files.label(notebook, cell)}: wrote to standard error" for cell in execute.loud(notebook)]
    for one in exercises:
        said = execute.text(notebook.cells[one.check])
        if not any(line.startswith("right") for line in said.splitlines()):
            wrong.append(f"exercise {one.number}: the check does not say right to the solution, but {said!r}")
    return wrong


def mutants_of(path):
    file = MUTANTS / f"lesson_{path.stem[:2]}.py"
    if not file.exists():
        return {}
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MUTANTS


TRIED = {}  # what came of each lesson's wrong answers in this run


def tried(path):
    if path not in TRIED:
        TRIED[path] = try_wrong_answers(path, mutants_of(path))
    return TRIED[path]


@pytest.fixture(scope="module", autouse=True)
def list_of_refused_mutants():
    """Leave in build/mutants.md the mutants that the checks refused in this run."""
    yield
    lines = []
    for path, (every, _) in sorted(TRIED.items()):
        lines += [f"\n## {path.stem}"]
        attempts = [one for one in every if one.graded and one.name != "untouched"]
        for one in attempts:
            lines.append(f"- exercise {one.exercise}: {one.name}: " + (one.problem() or "refused"))
    if lines:
        write(BUILD / "mutants.md", "# Wrong answers and what the checks said to them\n" + "\n".join(lines) + "\n")


def test_there_are_lessons():
    assert len(LESSONS) >= 2


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_solution_passes_its_check_and_nothing_is_noisy(path):
    assert solve(path) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_exercise_has_three_mutants(path):
    numbers = [one.number for one in lesson_files.exercises(lesson_files.read(path))]
    mutants = mutants_of(path)
    assert sorted(mutants) == numbers
    assert {number: len(mutants[number]) for number in numbers if len(mutants[number]) < 3} == {}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_nothing_stops_while_wrong_answers_are_tried(path):
    assert tried(path)[1] == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_an_untouched_exercise_is_not_done_yet(path):
    untouched = [attempt for attempt in tried(path)[0] if attempt.name == "untouched"]
    assert untouched
    assert [problem for problem in (attempt.problem() for attempt in untouched) if problem] == []


@pytest.mark.parametrize(
    ("path", "number", "name"),
    [(path, number, name) for path in LESSONS for number, named in mutants_of(path).items() for name in named],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_the_check_refuses_the_mutant(path, number, name):
    about = [attempt for attempt in tried(path)[0] if (attempt.exercise, attempt.name) == (number, name)]
    assert len(about) == 2  # graded and not
    assert [problem for problem in (attempt.problem() for attempt in about) if problem] == []


# ------------------------------------------------------------------------------------------ the harness can fail

SAMPLE_MUTANTS = {
    1: {"adds two": [("n + 1", "n + 2")], "adds nothing": [("n + 1", "n + 0")]},
    2: {"right for 1 only": [("1 + n", "2 * n")]},
}


def sample(folder, judge=None):
    cells = sample_lesson.cells()
    if judge:
        at = next(i for i, cell in enumerate(cells) if cell.source == sample_lesson.HELPER)
        cells[at].source = judge
    return sample_lesson.save(folder, sample_lesson.notebook(cells))


def complaints(path, mutants=SAMPLE_MUTANTS):
    attempts, stopped = try_wrong_answers(path, mutants)
    assert len(attempts) == 2 * (2 + sum(map(len, mutants.values())))
    return [problem for problem in (attempt.problem() for attempt in attempts) if problem], stopped


def test_good_checks_are_not_complained_of(tmp_path):
    path = sample(tmp_path)
    assert solve(path) == []
    assert complaints(path) == ([], [])


def test_a_check_that_accepts_everything_is_found(tmp_path):
    path = sample(tmp_path, "def judge(function):\n    print('right')")
    found, stopped = complaints(path)
    assert len(found) == 10 and stopped == []
    assert "exercise 1, adds two, graded: was not refused" in found[1]


def test_a_check_that_refuses_the_solution_is_found(tmp_path):
    path = sample(tmp_path, "def judge(function):\n    print('not yet')")
    assert len(solve(path)) == 2


def test_a_check_that_raises_for_a_learner_or_writes_to_standard_error_is_found(tmp_path):
    raises = "def judge(function):\n    raise ValueError(function)"
    found, _ = complaints(sample(tmp_path, raises))
    assert len(found) == 10 and "the check raised ValueError" in found[-1]
    noisy = sample_lesson.HELPER.replace("    verdict =", "    import sys; print('x', file=sys.stderr)\n    verdict =")
    assert len(complaints(sample(tmp_path, noisy))[0]) == 10
    assert "standard error" in solve(sample(tmp_path, noisy))[0]


def test_a_wrong_answer_that_ends_the_kernel_is_found(tmp_path):
    deadly = {1: {"deadly": [("return n + 1", "import os; os._exit(9)")]}}
    found, stopped = complaints(sample(tmp_path), deadly)
    assert "never reached" in found[-1]
    assert "kernel ended" in stopped[0]


def test_a_mutant_that_no_longer_fits_its_solution_is_told(tmp_path):
    from helpers.errors import WorkshopError

    with pytest.raises(WorkshopError, match="holds no 'n - 1'"):
        try_wrong_answers(sample(tmp_path), {1: {"old": [("n - 1", "n")]}})
