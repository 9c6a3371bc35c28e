"""Print the verdict on an exercise; judge functions, diagnoses and predictions. Kernels have checks of their own.

Every check prints one `Verdict` and its account, and never raises for a learner. With ANYGPU_GRADE=1 (tests,
`run --grade`), and while nbgrader grades or validates, a wrong and an untouched exercise raise `CheckFailed` instead,
because nbgrader gives full points to a cell that merely prints "wrong", and none to one that writes to standard error,
which no check ever does.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from helpers import variables
from helpers.errors import WorkshopError, wrap
from helpers.judge.values import describe_mismatch, is_same, short

GRADE = variables.GRADE
NBGRADER = "NBGRADER_EXECUTION"  # "autograde" or "validate" in what nbgrader (0.9) executes
REFUSED = "refused: "  # begins the line in which a process tells why it refuses a kernel, before it judges it again
RETURNS = "A function returns its answer with `return`, not with `print`."  # follows "... returned nothing."
SAME_PROCESS = variables.JUDGE_IN_SAME_PROCESS  # "1" only in tests of answers that neither crash nor run forever
Solution = TypeVar("Solution")  # the text of a kernel, or a function


class Verdict(enum.Enum):
    """What a check says of an answer; the value begins the line that it prints."""

    RIGHT = "right"
    NOT_YET = "not yet"
    NOT_DONE = "not done yet"
    NOT_JUDGED = "not judged"
    CANNOT_TELL = "cannot tell"

    def describe(self, account: str) -> str:
        """Return the line for a learner.

        Args:
            account: what was tried if the answer is right, the reason otherwise.
        """
        return f"{self.value} ({account})" if self is Verdict.RIGHT else f"{self.value}: {account}"


class CheckFailed(Exception):
    """Stops the cell of an exercise that is wrong or untouched, while grading."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


class NotRight(Exception):
    """A verdict other than right, with its reason; judges raise one of its subclasses."""

    verdict: ClassVar[Verdict]


class NotYet(NotRight):
    """The answer is wrong: what was expected, what came, and where."""

    verdict = Verdict.NOT_YET


class NotDone(NotRight):
    """The exercise is still untouched."""

    verdict = Verdict.NOT_DONE


class NotJudged(NotRight):
    """Nothing is known about the answer, because the judge needs what is missing here: why, and how to get it."""

    verdict = Verdict.NOT_JUDGED


class CannotTell(NotRight):
    """The judge tried and did not find out, so the answer may be right: what was over, or what it cannot follow."""

    verdict = Verdict.CANNOT_TELL


EXCEPTIONS = {exception.verdict: exception for exception in (NotYet, NotDone, NotJudged, CannotTell)}


def print_verdict(check: Callable[..., Iterator[str]]) -> Callable[..., None]:
    """Make a check, which prints a verdict, of a generator that yields each judge's account of what it tried.

    The first judge that raises NotRight decides the verdict. While grading, the check raises CheckFailed unless the
    answer is right.
    """

    @functools.wraps(check)
    def judge_and_print(*args: object, **kwargs: object) -> None:
        try:
            verdict, account = Verdict.RIGHT, "; ".join(check(*args, **kwargs))
        except NotRight as refused:
            verdict, account = refused.verdict, str(refused)
        message = verdict.describe(account)
        if verdict is not Verdict.RIGHT and (os.environ.get(GRADE) == "1" or NBGRADER in os.environ):
            raise CheckFailed(message)
        print(wrap(message))

    return judge_and_print


_right: dict[str, Any] = {}  # by name, the learner's last answer that a check called right


def keep_right(name: str, learner: object, account: str) -> str:
    """Keep an answer that a judge has just called right, for later cells; return the judge's account."""
    _right[name] = learner
    return account


def find_right(name: str, solution: Solution) -> Solution:
    """Return the learner's answer of that name if a check called it right, otherwise the solution; print which."""
    print(f"{name}: {'yours' if name in _right else 'the solution of the lesson'}")
    return get_right(name, solution)


def get_right(name: str, solution: Solution) -> Solution:
    """Return the learner's answer of that name if a check called it right, otherwise the solution."""
    return _right.get(name, solution)


class Judge(Protocol):
    """A function of a module that judges an answer and returns what it tried, for the verdict."""

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> str: ...  # noqa: ANN401, D102


def judge_in_subprocess(judge: Judge, seconds: float = 60.0, is_optimized: bool = True, **arguments: object) -> str:
    """Let another judge run the learner's kernel in a subprocess, where it may crash or never end.

    A kernel in OpenCL C that is refused, or that crashes, is judged again without optimization (`second_opinion`).

    Args:
        judge: a function of a module that a fresh process can import.
        seconds: how long the process may run, from its start to the verdict.
        is_optimized: whether the kernel is in OpenCL C and built with optimization; otherwise a second opinion would
            build the same program again.
        arguments: for the judge, plain data.

    Returns:
        What the judge tried.

    Raises:
        NotYet, NotDone, NotJudged, CannotTell: as the judge found; NotYet also if the process crashed, and CannotTell
            if it had not ended in time.
    """
    if not isinstance(arguments.get("source", ""), str):
        raise NotDone(f"expected the text of a kernel, came {short(arguments['source'])}.")
    call: dict[str, Any] = {
        "module": judge.__module__,
        "name": judge.__name__,
        "given": arguments,
        "is_optimized": is_optimized,
    }
    if os.environ.get(SAME_PROCESS) == "1":
        with contextlib.redirect_stdout(io.StringIO()):  # names each launch, for when the process ends in it
            outcome, text = _judge_here(**call)
    else:
        outcome, text = _judge_apart(call, seconds)
    verdict = Verdict(outcome)
    if verdict is Verdict.RIGHT:
        return text
    raise EXCEPTIONS[verdict](text)


def _judge_apart(call: dict, seconds: float, crash: str = "") -> tuple[str, str]:
    """Judge in a subprocess, and if it crashes in a second one; return the verdict's value and its account.

    Args:
        call: arguments of `_judge_here`.
        seconds: how long a process may run.
        crash: how the first process ended.
    """
    from helpers.running import processes

    given = {**call, "refusal": crash}
    run = processes.run("helpers.judge.checks:_judge_here", seconds=seconds, check=False, arguments=given)
    if run.result is not None:
        return run.result
    refusals = [line for line in run.stdout[0].splitlines() if line.startswith(REFUSED)]
    launch = next((line for line in reversed(run.stdout[0].splitlines()) if line not in refusals), "its first launch")
    if run.seconds > seconds:
        reason = f"the process that ran your kernel had not ended after {seconds:g} s. It was at {launch}."
        advice = "Either the kernel does not end, or this computer was too busy: end other programs, and try again."
        return Verdict.CANNOT_TELL.value, f"{reason} {advice}"
    if crash:
        return Verdict.NOT_YET.value, crash
    refusal = f"the process that ran your kernel gave no verdict: {run.failures[0]}. It was at {launch}."
    if refusals:
        refusal = json.loads(refusals[0].removeprefix(REFUSED))
    return _judge_apart(call, seconds, refusal) if call["is_optimized"] else (Verdict.NOT_YET.value, refusal)


def _judge_here(module: str, name: str, given: dict, is_optimized: bool = False, refusal: str = "") -> tuple[str, str]:
    """Judge in this process; return the verdict's value and its account, which are plain data.

    Args:
        module: of the judge.
        name: of the judge.
        given: its arguments.
        is_optimized: whether a kernel that is refused is judged again without optimization.
        refusal: of the first judgment, if that was made elsewhere.
    """
    import importlib

    judge = functools.partial(_judge_once, getattr(importlib.import_module(module), name), given)
    verdict, account = (Verdict.NOT_YET, refusal) if refusal else judge()
    if verdict is Verdict.NOT_YET and is_optimized:
        print(REFUSED + json.dumps(account), flush=True)  # for when the process ends in what follows
        from helpers.judge import second_opinion

        def judge_again() -> str | None:
            verdict, account = judge()
            return account if verdict is Verdict.RIGHT else None

        with contextlib.suppress(WorkshopError):  # there is no device
            if tried := second_opinion.judge_again(judge_again):
                return Verdict.RIGHT.value, tried
    return verdict.value, account


def _judge_once(judge: Judge, given: dict) -> tuple[Verdict, str]:
    """Return the verdict of a judge and its account."""
    try:
        return Verdict.RIGHT, judge(**given)
    except NotRight as refused:
        return refused.verdict, str(refused)
    except WorkshopError as wrong:
        return Verdict.NOT_YET, str(wrong)


# ---------------------------------------------------------------------------------------------- predictions


def compare_prediction(
    prediction: object, measured: object, unit: str = "", most: float = math.inf, how: str = "measured"
) -> None:
    """Print a learner's prediction beside what was measured, or that none was made.

    Args:
        prediction: what the learner filled in; None or `...` means no prediction.
        measured: what the cell measured.
        unit: the unit of both.
        most: the largest size that such a number can have, its sign aside; 100 for a percentage of a whole.
        how: the cell got it: "measured", "counted" or "computed".
    """
    actual, predicted = (
        _format_plainly(value) if isinstance(value, str) else f"{_format_plainly(value)} {unit}".rstrip()
        for value in (measured, prediction)
    )
    if prediction is None or prediction is ...:
        print(wrap(f"no prediction made; {how}: {actual}"))
    else:
        print(wrap(f"you predicted: {predicted}\n{how + ':':14} {actual}"))
        if isinstance(prediction, int | float) and abs(prediction) > most:
            print(f"(such a number is never larger than {most:g})")


def _format_plainly(value: object) -> str:
    """Return a number as people write it, anything else as its text."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---------------------------------------------------------------------------------------------- diagnoses


def judge_diagnosis(
    diagnosis: object, every: Mapping[str, object], parts: Sequence[str], what: str, judge: Callable[..., None]
) -> str:
    """Judge a dictionary that says of each letter's fault what it is; return what was tried, for the verdict.

    Args:
        diagnosis: for each letter a list or tuple of parts.
        every: by letter what was to be diagnosed.
        parts: names of what an entry holds.
        what: names what was to be diagnosed, such as "programs".
        judge: takes a letter, its value in `every`, and the parts; it raises NotYet.

    Raises:
        NotYet: an entry is missing, malformed or wrong.
        NotDone: no entry is filled in.
    """
    if not isinstance(diagnosis, Mapping):
        raise NotYet(f"expected a dictionary with the letters {', '.join(every)}, came {type(diagnosis).__name__}.")
    answers = {str(letter).strip().upper(): entry for letter, entry in diagnosis.items()}
    for letter in every:
        if letter not in answers:
            keys = ", ".join(map(repr, diagnosis)) or "an empty dictionary"
            raise NotYet(f"there is no key {letter!r}; came {keys}.")
        if not isinstance(answers[letter], list | tuple) or len(answers[letter]) != len(parts):
            raise NotYet(f"{letter}: expected ({', '.join(parts)}), came {answers[letter]!r}.")
    filled = [letter for letter in every if not all(map(is_empty, answers[letter]))]
    if not filled:
        raise NotDone(f"none of the {len(every)} {what} has a diagnosis yet.")
    for letter in filled:
        judge(letter, every[letter], *answers[letter])
    if empty := [letter for letter in every if letter not in filled]:
        raise NotYet(f"still empty: {', '.join(empty)}. Right so far: {', '.join(filled)}.")
    return f"{len(every)} {what}"


def is_empty(part: object) -> bool:
    """Return whether part of an answer is still untouched: None, `...`, 0 or an empty text."""
    if isinstance(part, str):
        return not part.strip()
    return part is None or part is ... or (np.isscalar(part) and part == 0)


# ---------------------------------------------------------------------------------------------- functions


def judge_function(
    learner: Callable[..., object],
    reference: Callable[..., object],
    cases: Callable[[np.random.Generator], Iterable[tuple]],
) -> str:
    """Judge a Python function against a reference on cases that change with every call.

    Args:
        learner: the learner's function; it is not done if it returns `...`, or always None where that is not right,
            or always raises NotImplementedError.
        reference: returns the right answer for the same arguments; it may be None for some of them.
        cases: given a random generator, returns tuples of arguments; put the awkward ones in by hand.

    Returns:
        What was tried, for the verdict.

    Raises:
        NotYet: an answer is wrong, or the function changed its argument.
        NotDone: it is untouched.
    """
    asked = list(cases(np.random.default_rng()))
    for arguments in asked:
        expected = reference(*copy.deepcopy(arguments))
        for _ in range(2):  # a function that remembers its last call differs the second time
            given = copy.deepcopy(arguments)
            actual = answer(learner, *given, who=_describe_call(learner, arguments))
            if actual is None and expected is not None:
                nothing = f"{_describe_call(learner, arguments)} returned None"
                values = (answer(learner, *copy.deepcopy(case), who=_describe_call(learner, case)) for case in asked)
                if any(value is not None for value in values):
                    raise NotYet(f"{nothing}; expected {short(expected)}.")
                raise NotDone(f"{nothing}. ({RETURNS})")
            if mismatch := describe_mismatch(expected, actual):
                raise NotYet(f"for {_describe_call(learner, arguments)} {mismatch}")
            if not all(is_same(after, before) for after, before in zip(given, arguments, strict=True)):
                raise NotYet(f"{_describe_call(learner, arguments)} changed its own argument; work on a copy.")
    return f"{len(asked)} cases"


def answer(learner: Callable[..., object], *given: object, who: str) -> object:
    """Call a learner's function and return what it returns; None if it raises NotImplementedError.

    Args:
        learner: the learner's function.
        given: its arguments.
        who: begins the message, as in "for 3 images it".

    Raises:
        NotYet: the function raised another error, which the message names.
        NotDone: it returned `...`.
    """
    try:
        returned = learner(*given)
    except NotImplementedError:
        return None
    except NotRight:  # of what the check handed in
        raise
    except Exception as error:
        raise NotYet(f"{who} stopped with {type(error).__name__}: {error}") from None
    if returned is ...:
        raise NotDone(f"{who} returned `...` (Ellipsis), unchanged: replace the `...` by your own code.")
    return returned


def _describe_call(learner: Callable[..., object], arguments: tuple) -> str:
    return f"{getattr(learner, '__name__', 'function')}({', '.join(short(a) for a in arguments)})"
