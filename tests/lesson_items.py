"""Lessons as nbval runs them, and behind their own cells every prepared answer, tried in the same kernel.

A lesson is executed once. nbval runs its cells, as everywhere; two things that nbval does not mind fail here: a cell
that writes to standard error, and a cell tagged raises-exception that raises nothing.

Just before an exercise's starter runs, each prepared answer to it is tried: the answer, then the exercise's check,
whose verdict must be the expected one. Each answer is a test of its own, such as `exercise 2: no guard`. It leaves no
trace: before it, the kernel remembers all names and environment variables, and afterwards it puts them back. So the
lesson's own cells, starter and check included, run last, and as if no answer had been there.
"""

import itertools
import time
from collections import defaultdict
from dataclasses import dataclass
from queue import Empty

import pytest
from nbformat import v4
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile

from helpers.commands import execute, lesson_files
from helpers.judge import mistakes
from helpers.judge.checks import Verdict

UNTOUCHED, SOLUTION = "untouched", "the solution"
VERDICTS = tuple(verdict.value for verdict in Verdict)
OUTPUT_SECONDS = 600  # nbval's own 5 are too few on a busy machine

# A learner's kernel is judged in a process of its own. Of the answers here only those are that may crash or never end.
REMEMBER = """
_before = dict(globals()), dict(__import__("os").environ)
__import__("os").environ.update(ANYGPU_GRADE="{graded:d}", ANYGPU_JUDGE_IN_SAME_PROCESS="{same_process:d}")
"""
PUT_BACK = """
def _put_back(names, environment):
    import os

    for name in set(globals()) - set(names):
        del globals()[name]
    globals().update(names)
    for variable in set(os.environ) - set(environment):
        del os.environ[variable]
    os.environ.update(environment)

_put_back(*_before)
"""


class WatchedKernel(RunningKernel):
    """A kernel of nbval's that is not waited for once its process has ended."""

    def get_message(self, stream, timeout=None):
        """Return the next message of a stream.

        Raises:
            Empty: none came within `timeout` seconds.
            RuntimeError: the kernel has ended.
        """
        end = time.monotonic() + (timeout or float("inf"))
        while True:
            try:
                return super().get_message(stream, min(1.0, max(end - time.monotonic(), 0.0)))
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("The kernel ended.") from None
                if time.monotonic() >= end:
                    raise


class LessonFile(IPyNbFile):
    """A notebook; if it is one of the course's lessons, with the prepared answers to its exercises."""

    @property
    def is_lesson(self):
        """Whether this is a lesson of the course, not a learner's copy."""
        return self.path.parent == lesson_files.FOLDER

    def setup(self):
        """Start a kernel of this very Python, whatever kernels are installed, in the notebook's folder."""
        seconds = self.config.option.nbval_kernel_startup_timeout
        self.kernel = WatchedKernel(CURRENT_ENV_KERNEL_NAME, cwd=str(self.path.parent), startup_timeout=seconds)
        self.setup_sanitize_files()

    def collect(self):
        """Yield the notebook's code cells in their order, and before each exercise its answers."""
        cells = list(super().collect())
        exercises = lesson_files.exercises(self.nb) if self.is_lesson else []
        starters = {id(self.nb.cells[exercise.cell]): exercise for exercise in exercises}
        prepared = mistakes.read(self.path.stem, mistakes.FOLDER)
        for cell in cells:
            if exercise := starters.get(id(cell.cell)):
                check = self.nb.cells[exercise.check].source
                for attempt in plan_attempts(exercise, prepared.get(exercise.number)):
                    item = AnswerItem.from_parent(
                        self, name=attempt.label, cell_num=cell.cell_num, attempt=attempt, check=check
                    )
                    if not attempt.is_quick:
                        item.add_marker(pytest.mark.slow)
                    yield item
            yield LessonCell.from_parent(
                self, name=cell.name, cell_num=cell.cell_num, cell=cell.cell, options=cell.options
            )


class LessonCell(IPyNbCell):
    """A cell of the notebook, untouched."""

    def __init__(self, **options):
        super().__init__(**options)
        self.output_timeout = OUTPUT_SECONDS

    def runtest(self):
        """Run the cell by nbval's rules, and ours."""
        super().runtest()
        ran = v4.new_code_cell(outputs=self.test_outputs)
        if stderr := execute.text(ran, "stderr"):
            self.raise_cell_error("The cell wrote to standard error", stderr)
        if self.options["check_exception"] and not execute.errors(ran):
            self.raise_cell_error("The cell is tagged raises-exception, and it raised nothing")
        is_check = self.parent.is_lesson and "check" in lesson_files.tags(self.cell)
        if is_check and not find_what_is_missing(ran) and (problem := find_verdict_problem(ran, "not done yet")):
            self.raise_cell_error(f"The untouched exercise: {problem}")


@dataclass(frozen=True)
class Attempt:
    """One answer to an exercise, and the verdict that its check should give."""

    exercise: int
    answer: mistakes.Answer
    verdict: str  # one of VERDICTS
    is_graded: bool = True  # as in `run --grade`, where a wrong answer raises; otherwise as a learner meets the check
    is_quick: bool = False  # whether it is tried without --all, too

    @property
    def label(self):
        return f"exercise {self.exercise}: {self.answer.name}{'' if self.is_graded else ', not graded'}"


def plan_attempts(exercise, prepared):
    """Return what is tried of an exercise: untouched, each known mistake, each right answer, the solution.

    Every answer is graded. What a learner sees differs in one branch of the verdict, which a right answer never takes:
    the first mistake of the lesson's first exercise is tried in that way too. Untouched exercises are so by the
    lesson's own cells.

    Args:
        exercise: of `lesson_files.exercises`.
        prepared: what the lesson's file holds for it, None if nothing.
    """
    number = exercise.number
    prepared = prepared or mistakes.Prepared({}, {})
    wrong = mistakes.prepare(prepared.mistakes, exercise.solution, f"{prepared.place}.mistakes")
    attempts = [Attempt(number, mistakes.Answer(UNTOUCHED, exercise.starter), "not done yet", is_quick=True)]
    for place, answer in enumerate(wrong):
        attempts.append(Attempt(number, answer, "not yet", is_quick=place == 0))
    if number == 1:
        for answer in itertools.islice(wrong, 1):
            attempts.append(Attempt(number, answer, "not yet", is_graded=False, is_quick=True))
    for answer in mistakes.prepare(prepared.right, exercise.solution, f"{prepared.place}.right"):
        attempts.append(Attempt(number, answer, "right"))
    return [*attempts, Attempt(number, mistakes.Answer(SOLUTION, exercise.solution), "right", is_quick=True)]


class AnswerItem(IPyNbCell):
    """A prepared answer: nbval runs it and its check in the lesson's kernel."""

    def __init__(self, *, attempt, check, **options):
        answer = v4.new_code_cell(attempt.answer.code)
        super().__init__(cell=answer, options=defaultdict(bool, check_exception=True), **options)
        self.output_timeout = OUTPUT_SECONDS
        self.attempt, self.answer, self.check = attempt, answer, v4.new_code_cell(check)

    def reportinfo(self):
        """Return where this test is, and what reports call it."""
        return self.path, 0, f"{self.path.relative_to(self.config.rootpath)}::{self.name}"

    def runtest(self):
        """Try the answer, and fail unless its check gives the expected verdict."""
        settings = REMEMBER.format(graded=self.attempt.is_graded, same_process=not self.attempt.answer.own_process)
        for cell in (v4.new_code_cell(settings), self.answer, self.check, v4.new_code_cell(PUT_BACK)):
            self.cell = cell
            super().runtest()
            cell.outputs = self.test_outputs
        self.cell = self.answer
        if missing := find_what_is_missing(self.check):
            pytest.skip(missing)
        if problem := find_problem(self.attempt, self.answer, self.check):
            self.raise_cell_error(problem)


def read_check(check):
    """Return what an executed check printed, and the messages of the errors that it raised."""
    return "\n".join([execute.text(check), *(error.evalue for error in execute.errors(check))])


def find_what_is_missing(check):
    """Return why an executed check could not judge here, as where lesson 14 finds no GPU; "" if it judged."""
    text = " ".join(read_check(check).split())
    return text if text.startswith("not judged") else ""


def find_problem(attempt, answer, check):
    """Return why an answer or its check did not do as it should; "" if all is well.

    Args:
        attempt: what was tried.
        answer: the executed cell of the answer.
        check: the executed cell of the check.
    """
    if raised := execute.errors(answer):
        return f"The answer itself raised {raised[0].ename}, before any check."
    if stderr := execute.text(answer, "stderr") + execute.text(check, "stderr"):
        return f"It wrote to standard error: {stderr[:200]}"
    return find_verdict_problem(check, attempt.verdict, attempt.is_graded, attempt.answer.as_if)


def find_verdict_problem(check, verdict, is_graded=False, as_if=""):
    """Return why an executed check did not give a verdict; "" if it did.

    Args:
        check: the executed cell.
        verdict: the expected one, of VERDICTS.
        is_graded: whether a verdict other than "right" must raise.
        as_if: the name of the mistake that the verdict must tell a learner.
    """
    expected = ["CheckFailed"] if is_graded and verdict != "right" else []
    actual = [error.ename for error in execute.errors(check)]
    text = read_check(check)
    if expected and text.startswith("right"):
        return f"The check calls this wrong answer right. Give it a case that tells them apart: {text!r}"
    if actual != expected:
        return f"Expected {expected or 'no error'}, actual {actual or 'no error'}: {text!r}"
    verdicts = [line for line in text.splitlines() if line.startswith(VERDICTS)]
    if len(verdicts) != 1 or not verdicts[0].startswith(verdict):
        return f"Expected one verdict that begins with {verdict!r}, actual {text!r}"
    named = " ".join(text.split()).partition("It is as if ")[2]
    if named != (f"{as_if}." if as_if else ""):
        return f"Expected the name {as_if!r}, actual {named!r}"
    return ""
