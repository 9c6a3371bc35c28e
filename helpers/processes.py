"""Run a function that the lesson shows in one or several fresh processes of this computer.

A framework that has started cannot be started differently: another Keras backend, other devices or a second worker need
processes of their own. A lesson shows their script as a function and runs it here:

    def add(a, b):
        import os

        print("process", os.getpid())
        return a + b

    processes.run(add, a=1, b=2).result

The function's source travels, nothing of the notebook's state: what it needs, it imports or receives. It is called with
the given arguments and, if it has parameters of these names, with `process` (its number from 0) and `addresses` (one
free "127.0.0.1:PORT" for each process). What it returns comes back as data.

However a run ends, nothing of it is left. The processes form one group, whose leader only waits. A guard beside the
group ends it and removes its temporary folder as soon as `run` says so, or is gone (`kill -9` too): the guard then
reads the end of a pipe. A thread inside the processes could not do that, as compiled code may never let it run.
Processes that leave the group by themselves (`start_new_session=True`) are theirs to end.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import pickle
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from helpers.errors import WorkshopError
from helpers.tables import SideBySide

PORTS = range(20_000, 30_000)  # below the ports that systems give to outgoing connections: nobody takes one by chance
KEPT_BYTES = 100_000  # of what a process prints: so much from the beginning, and so much from the end
SHOWN_LINES = 8  # of the log and of the noise in a message
RESERVED = ("function", "processes", "seconds", "variables", "check", "python")
PLAIN = "None, bool, int, float, complex, str, bytes, list, tuple, dict, set, NumPy arrays and scalars"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What came of a run; every list has one entry for each process.

    Attributes:
        results: what the function returned; None where it failed.
        logs: what it printed.
        noise: what libraries and warnings wrote past `print`, to file descriptors 1 and 2.
        failures: why it failed; empty where all went well.
        seconds: from the call of `run` to the end of the last process.
    """

    results: list[Any]
    logs: list[str]
    noise: list[str]
    failures: list[str]
    seconds: float

    @property
    def result(self) -> Any:  # noqa: ANN401
        """What the function returned in the first process."""
        return self.results[0]

    def __str__(self) -> str:
        """The log of one process as it is; several side by side."""
        return str(self._logs_side_by_side())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._logs_side_by_side()._repr_html_()

    def _logs_side_by_side(self) -> SideBySide:
        logs = [_told(log, why) for log, why in zip(self.logs, self.failures, strict=True)]
        return SideBySide(logs, [f"process {number}" for number in range(len(logs))])


_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _told(log: str, failure: str) -> str:
    """A log as a terminal would leave it, and how the process failed."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in _COLOURS.sub("", log).split("\n")]
    text = "\n".join(lines).rstrip("\n")
    return "\n".join(part for part in (text, failure and f"[failed] {failure}") if part)


def run(
    function: Callable[..., Any],
    processes: int = 1,
    seconds: float = 120.0,
    variables: Mapping[str, str | None] | None = None,
    check: bool = True,
    python: str | None = None,
    **arguments: Any,  # noqa: ANN401
) -> Run:
    """Call a function in fresh Python processes and bring back what it returned and printed.

    Args:
        function: written with `def`; it imports what it uses, and may have parameters `process` and `addresses`.
        processes: how many; each runs the same function.
        seconds: for all of it; when they are over, the processes are killed.
        variables: environment variables to set, or to remove (None), for the processes.
        check: whether the first failure ends all and raises. Without it the other processes go on, and the failures
            are in the result.
        python: the Python that runs it, 3.11 or newer, from another environment, whose packages alone it then has
            (lesson 03); this one if None.
        arguments: for the function, by name; plain data, as what it returns: None, numbers, text, bytes, lists,
            tuples, dictionaries, sets, NumPy arrays.

    Raises:
        WorkshopError: the function cannot be run like this, or (with `check`) a process failed or the time is over.
        KeyboardInterrupt: as pressed; the processes have ended by then.
    """
    began = time.perf_counter()
    processes, seconds = _count(processes), _limit(seconds)
    variables = _variables(variables)
    script = _script(function)
    given, own = _arguments(function, arguments)
    with _ports(processes if "addresses" in own else 0) as addresses:
        own = [{"process": number, "addresses": addresses} for number in range(processes)]
        jobs = (_dumps({**script, "arguments": given, "seconds": seconds}), [_dumps(values) for values in own])
        crew = _Crew(script["name"], jobs, variables, began + seconds, check, python)
        try:
            crew.work_aside()
        except KeyboardInterrupt as error:
            told = f"Interrupted: the processes of {script['name']} have ended. Run the cell again when you like."
            error._render_traceback_ = lambda: [told]  # what a notebook shows instead of a traceback
            raise
    return _outcome(crew, script, seconds, time.perf_counter() - began)


# --------------------------------------------------------------------------------------------------------------------
# A command that may hang


def import_path() -> str:
    """Return a PYTHONPATH with which a fresh process imports what this one would, the workshop's helpers among it."""
    root = str(Path(__file__).resolve().parent.parent)
    path = [folder for folder in sys.path if folder]
    return os.pathsep.join(path if root in path else [*path, root])


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    Attributes:
        status: its exit status, negative for a signal; None if it was killed because its time was up.
        stdout: what it wrote, undecodable bytes replaced.
        stderr: likewise.
        seconds: how long it ran.
    """

    status: int | None
    stdout: str
    stderr: str
    seconds: float


_running: set[subprocess.Popen[str]] = set()


_running_lock = threading.Lock()


def run_command(command: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command in a process group of its own; when its time is up, kill it with all that it started.

    Args:
        command: program and arguments; no shell.
        timeout: seconds.
        env: its environment variables; None for ours.

    Raises:
        OSError: the program cannot be started.
    """
    group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if os.name == "nt" else {"start_new_session": True}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=env, encoding="utf-8", errors="replace", **pipes, **group)
    with _running_lock:
        _running.add(process)
    status: int | None = None
    try:
        out, err = process.communicate(timeout=timeout)
        status = process.returncode
    except subprocess.TimeoutExpired:
        kill(process)
        out, err = _drain(process)
    except BaseException:
        kill(process)
        _drain(process)
        raise
    finally:
        with _running_lock:
            _running.discard(process)
    return Finished(status, out, err, time.perf_counter() - start)


def _drain(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Collect what a killed process wrote; do not wait for a descendant that left the group and holds the pipes."""
    try:
        return process.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
        process.wait()
        return "", ""


def kill(process: subprocess.Popen) -> None:
    """End the leader of a process group, and all that is in the group; on Windows it and its descendants."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, timeout=10, check=False)
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def kill_all() -> None:
    """End every process that `run` started and that still runs, with all that it started itself."""
    with _running_lock:
        for process in _running:
            kill(process)


# --------------------------------------------------------------------------------------------------------------------
# What was asked for


def _count(processes: int) -> int:
    import operator

    try:
        number = 0 if isinstance(processes, bool) else operator.index(processes)
    except TypeError:
        number = 0
    if number < 1:
        raise WorkshopError(
            f"There is no way to start {processes!r} processes.", next="Give processes a whole number from 1."
        )
    return number


def _limit(seconds: float) -> float:
    try:
        limit = math.nan if isinstance(seconds, bool | str) else float(seconds)
    except (TypeError, ValueError):
        limit = math.nan
    if not 0 < limit < math.inf:
        raise WorkshopError(
            f"A run cannot be given {seconds!r} seconds.",
            "Every run has a time limit, so that one that hangs ends.",
            "Give seconds a number above 0.",
        )
    return limit


def _variables(variables: Mapping[str, str | None] | None) -> dict[str, str | None]:
    changes = dict(variables or {})
    for name, value in changes.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise WorkshopError(f"{name!r} is no name of an environment variable.", next='Write {"NAME": "value"}.')
        if not isinstance(value, str | None) or "\0" in (value or ""):
            raise WorkshopError(
                f"The variable {name} cannot be {value!r}.",
                "Environment variables are text.",
                f'Write {{"{name}": "{value}"}}, or None to remove it.',
            )
    return changes


def _script(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's name, its source and the flags to compile it with, or say why it cannot travel."""
    import inspect

    name = getattr(function, "__name__", type(function).__name__)
    if not inspect.isfunction(function) or name == "<lambda>":
        kind = "a lambda" if name == "<lambda>" else f"of type {type(function).__name__}"
        raise WorkshopError(
            f"{name} is not a function written with def: it is {kind}.",
            "The fresh process gets the function's source.",
            "Write a function with def, and call from it what you want to run.",
        )
    outer = function.__qualname__.split(".")[:-1]
    if outer and outer[-1] != "<locals>":
        raise WorkshopError(
            f"{function.__qualname__} is a method.",
            "The fresh process would not have its class.",
            "Write a function outside of any class.",
        )
    unordinary = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_one(function) for is_one in unordinary):
        raise WorkshopError(
            f"{name} yields or is async.",
            "A run calls the function once and takes what it returns.",
            "Write an ordinary function.",
        )
    flags = function.__code__.co_flags & _future_annotations()
    try:
        source = inspect.getsource(function)
        decorators, code = _compiled(name, source, flags)
    except (OSError, TypeError, SyntaxError, ValueError):
        raise WorkshopError(
            f"The source of {name} cannot be found.",
            "It was typed into python -c, stands in a cell with a magic such as %%time, or its file has changed.",
            "Define it in a cell of its own, or in a file.",
        ) from None
    if decorators:
        raise WorkshopError(
            f"{name} has a decorator: {', '.join('@' + text for text in decorators)}.",
            "The fresh process gets the function alone, and the decorator would be lost.",
            "Use the decorator inside the function, on a function of its own.",
        )
    missing = _outside(function, code)
    if missing:
        raise WorkshopError(
            f"{name} uses names from outside of itself: {', '.join(missing)}.",
            "It runs in a fresh process, which has nothing of this one.",
            "Import or define them inside the function, or make them its parameters and pass their values.",
        )
    return {"name": name, "source": source, "flags": flags}


def _future_annotations() -> int:
    import __future__

    return __future__.annotations.compiler_flag


def _compiled(name: str, source: str, flags: int) -> tuple[list[str], CodeType]:
    """Compile the source of one function; line 1 is its first line.

    Its annotations and default values are left out: they may use names that only the caller has. The caller sends the
    defaults' values.

    Returns:
        The decorators as text, and the code that defines the function.

    Raises:
        ValueError: the source is not that of this function.
        SyntaxError: it is no Python.
    """
    import ast

    inner = source[:1].isspace()  # not dedented: that would change the text in strings of several lines
    tree = ast.parse(f"if True:\n{source}" if inner else source)
    function = (tree.body[0].body if inner else tree.body)[0]
    if not isinstance(function, ast.FunctionDef) or function.name != name:
        raise ValueError(f"not the source of {name}")
    ast.increment_lineno(function, -1 if inner else 0)
    signature = function.args
    every = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs, signature.vararg, signature.kwarg]
    for argument in every:
        if argument:
            argument.annotation = None
    function.returns = None
    signature.defaults = [ast.copy_location(ast.Constant(None), default) for default in signature.defaults]
    signature.kw_defaults = [
        default and ast.copy_location(ast.Constant(None), default) for default in signature.kw_defaults
    ]
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    module = ast.Module([function], [])
    return decorators, compile(module, _file(name), "exec", flags, dont_inherit=True)


def _file(name: str) -> str:
    """The name under which the source appears in tracebacks."""
    return f"<{name}>"


def _outside(function: Callable[..., Any], code: CodeType) -> list[str]:
    """Return the names that a function takes from outside of itself and that a fresh process lacks."""
    import builtins
    import dis

    notebook = {"get_ipython", "display", "_", "__IPYTHON__"}  # IPython puts them among the builtins
    known, used = set(dir(builtins)) - notebook | {function.__name__}, set(function.__code__.co_freevars)
    codes = [code]
    for body in codes:
        codes += [constant for constant in body.co_consts if isinstance(constant, CodeType)]
        steps = [(step.opname, step.argval) for step in dis.get_instructions(body)]
        own = {argument for step, argument in steps if step == "STORE_NAME"}  # of a class
        known |= {argument for step, argument in steps if step == "STORE_GLOBAL"}
        loads = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
        used |= {argument for step, argument in steps if step in loads and argument not in own}
    # A name of the caller's that hides a builtin one, such as a variable called sum; in a notebook IPython hides three.
    hidden = {one for one in used & vars(builtins).keys() & function.__globals__.keys() if not one.startswith("__")}
    hidden = {one for one in hidden if function.__globals__[one] is not getattr(builtins, one)}
    known -= hidden - {"open", "exit", "quit"} | set(function.__code__.co_freevars) - {function.__name__}
    return sorted(used - known)


def _arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[dict[str, bytes], list[str]]:
    """Return every argument of the function, packed, and the names of those that each process gets for itself."""
    import inspect

    name, signature = function.__name__, inspect.signature(function, follow_wrapped=False)
    kept = [one for one in RESERVED if one in signature.parameters]
    if kept:
        raise WorkshopError(
            f"{name} has a parameter called {kept[0]}.",
            "processes.run has one of the same name, and would keep the value for itself.",
            f"Give the parameter of {name} another name.",
        )
    own = [one for one in ("process", "addresses") if one in signature.parameters]
    for one in own:
        if one in arguments:
            raise WorkshopError(
                f"The argument {one} is not yours to give.",
                f"processes.run gives each process its own {one}.",
                "Leave it out, or give the parameter another name.",
            )
    try:
        bound = signature.bind(**arguments, **dict.fromkeys(own))
    except TypeError as error:
        names = [one for one in signature.parameters if one not in own]
        raise WorkshopError(
            f"{name} cannot be called with these arguments: {error}.",
            next=f"Pass its parameters to processes.run by name: {', '.join(names) or 'it has none'}.",
        ) from None
    bound.apply_defaults()
    packed = {}
    for one, value in bound.arguments.items():
        if one in own:
            continue
        try:
            packed[one] = _dumps(value)
        except _NotPlain as error:
            raise WorkshopError(
                f"The argument {one} cannot travel to another process: {error}.",
                f"What travels is plain data: {PLAIN}.",
                "Pass numbers, text or numpy.asarray(x), and build the rest inside the function.",
            ) from None
    return packed, own


# --------------------------------------------------------------------------------------------------------------------
# Free ports

_lent: set[int] = set()
_lent_lock = threading.Lock()


@contextlib.contextmanager
def _ports(number: int) -> Iterator[list[str]]:
    """Lend addresses that nobody listens on, and that no other run of this process has."""
    ports: list[int] = []
    try:
        with _lent_lock:
            for port in random.SystemRandom().sample(PORTS, len(PORTS)) if number else ():
                if port not in _lent and _free(port):
                    _lent.add(port)
                    ports.append(port)
                if len(ports) == number:
                    break
        if len(ports) < number:
            raise WorkshopError(
                f"There are not {number} free ports between {PORTS.start} and {PORTS.stop - 1} on this computer.",
                next="End the programs that hold them, or ask for fewer processes.",
            )
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        with _lent_lock:
            _lent.difference_update(ports)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        if os.name == "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# --------------------------------------------------------------------------------------------------------------------
# Plain data


class _NotPlain(Exception):
    """Says what cannot travel between processes."""


def _numpys(thing: Any) -> bool:  # noqa: ANN401
    """Whether it is an array, a scalar or a dtype of NumPy's own; NumPy is not imported for it."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if type(thing) is numpy.ndarray:
        return thing.dtype.type.__module__ == "numpy"
    return isinstance(thing, numpy.generic | numpy.dtype) and type(thing).__module__.split(".")[0] == "numpy"


_RESTORES = {("builtins", "complex"), ("numpy", "dtype"), ("numpy", "ndarray")}
for _core in ("numpy._core", "numpy.core"):  # since NumPy 2, before
    _RESTORES |= {(f"{_core}.multiarray", "_reconstruct"), (f"{_core}.multiarray", "scalar")}
    _RESTORES |= {(f"{_core}.numeric", "_frombuffer")}


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:  # noqa: ANN401
        """Is asked about everything but None, bool, int, float, str, bytes, list, tuple, dict and set."""
        if type(thing) is complex or _numpys(thing):
            return NotImplemented
        if isinstance(thing, type | BuiltinFunctionType | FunctionType):
            if (thing.__module__, thing.__qualname__) in _RESTORES:
                return NotImplemented
            raise _NotPlain(f"it is, or holds, {thing.__qualname__}, which is code")
        kind = type(thing)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        if name == "numpy.ndarray":
            raise _NotPlain(f"it is, or holds, an array of {thing.dtype}, which needs .astype('float32')")
        raise _NotPlain(f"it is, or holds, an object of type {name}")


def _dumps(thing: Any) -> bytes:  # noqa: ANN401
    """Pack plain data.

    Raises:
        _NotPlain: it is, or holds, something else.
    """
    packed = io.BytesIO()
    try:
        _Pickler(packed, protocol=5).dump(thing)
    except _NotPlain:
        raise
    except Exception as error:
        raise _NotPlain(f"it cannot be packed ({type(error).__name__}: {error})") from None
    return packed.getvalue()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Refuse whatever `_Pickler` does not write: unpacking must not run code."""
        if (module, name) not in _RESTORES:
            raise _NotPlain(f"it names {module}.{name}")
        return super().find_class(_known_here(module), name)


def _known_here(module: str) -> str:
    """NumPy 2 renamed its core, and either version has it under its own name alone."""
    if not module.startswith(("numpy.core", "numpy._core")):
        return module
    import numpy

    core = "numpy.core" if numpy.__version__.startswith("1.") else "numpy._core"
    return re.sub(r"^numpy\._?core", core, module)


def _loads(packed: bytes) -> Any:  # noqa: ANN401
    return _Unpickler(io.BytesIO(packed)).load()


# --------------------------------------------------------------------------------------------------------------------
# The processes, seen from here


class _Kept:
    """The beginning and the end of what a process wrote, however much that is."""

    def __init__(self) -> None:
        self.head, self.tail, self.total = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = KEPT_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[max(room, 0) :]
        if len(self.tail) > 2 * KEPT_BYTES:
            del self.tail[:-KEPT_BYTES]

    def __str__(self) -> str:
        head, tail = bytes(self.head), bytes(self.tail)[-KEPT_BYTES:]
        left_out = self.total - len(head) - len(tail)
        if left_out <= 0:
            return (head + tail).decode(errors="replace")
        return f"{head.decode(errors='ignore')}\n[... {left_out:,} bytes left out ...]\n{tail.decode(errors='ignore')}"


_FRAME = struct.Struct("<cI")  # what a frame is, and the bytes that follow
_PRINTED, _ANSWER, _DONE = b"P", b"A", b"D"


@dataclass
class _Worker:
    """One process: what it wrote, what it answered, and how it ended."""

    process: subprocess.Popen[bytes]
    log: _Kept = field(default_factory=_Kept)
    noise: _Kept = field(default_factory=_Kept)
    stack: _Kept | None = None  # takes what comes after the time-out: where the process is
    answer: bytearray = field(default_factory=bytearray)
    said: threading.Event = field(default_factory=threading.Event)  # all that it had to say
    done: bool = False  # it has answered as a whole
    status: int | None = None  # its exit status, if it ended by itself
    threads: list[threading.Thread] = field(default_factory=list)

    @functools.cached_property
    def answered(self) -> dict[str, Any]:
        """What came of the call: "result", or "failure" and "next"; only when it is done."""
        try:
            return _loads(self.answer)
        except Exception as error:  # compiled code wrote into the process's memory, or into its pipe
            return {"failure": f"its answer came damaged ({type(error).__name__}: {error})"}


class _Crew:
    """Starts the processes, listens to them, and ends them."""

    def __init__(
        self,
        name: str,
        jobs: tuple[bytes, list[bytes]],
        variables: dict[str, str | None],
        deadline: float,
        check: bool,
        python: str | None,
    ) -> None:
        import queue

        self.name, self.jobs, self.variables, self.deadline, self.check = name, jobs, variables, deadline, check
        self.python = python
        self.workers: list[_Worker] = []
        self.late: list[int] = []  # those that had not answered when the time was over
        self.first: int | None = None  # the one whose failure ended all
        self.events: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.leader: subprocess.Popen[bytes] | None = None
        self.error: BaseException | None = None
        self.ready, self.over = threading.Event(), threading.Event()

    def work_aside(self) -> None:
        """Do all the work in a thread, which no Ctrl-C can interrupt halfway; a Ctrl-C ends it in order."""
        thread = threading.Thread(target=self.work, daemon=True)
        try:
            thread.start()
            while not self.over.wait(0.5):  # on Windows a wait without an end would not see Ctrl-C
                pass
        except BaseException:
            while thread.is_alive():
                with contextlib.suppress(KeyboardInterrupt):  # pressed again
                    self.events.put(None)
                    thread.join()
            raise
        if self.error:
            raise self.error

    def work(self) -> None:
        try:
            self.start()
            self.watch()
        except BaseException as error:
            self.error = error
        finally:
            try:
                self.end()
            except BaseException as error:
                self.error = self.error or error
            self.over.set()

    # ---- start

    def start(self) -> None:
        import inspect
        import tempfile

        self.folder = Path(tempfile.gettempdir()) / f"anygpu-{os.getpid()}-{os.urandom(6).hex()}"
        guard = [sys.executable, "-I", "-S", "-c", f"{inspect.getsource(_guard)}\n_guard()"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        windows = os.name == "nt"
        group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if windows else {"process_group": 0}
        try:
            self.leader = subprocess.Popen(
                [*guard, str(self.folder), str(os.getpid())], stderr=subprocess.DEVNULL, **pipes, **group
            )
            if not windows:
                group = {"process_group": self.leader.pid}
            for _ in self.jobs[1]:
                process = subprocess.Popen(
                    [self.python or sys.executable, "-P", "-u", "-m", "helpers.processes"],
                    env=self.environment(),
                    stderr=subprocess.PIPE,
                    bufsize=1 << 16,
                    **pipes,
                    **group,
                )
                self.workers.append(_Worker(process))
                if windows:
                    self.leader.stdin.write(f"{process.pid}\n".encode())
                    self.leader.stdin.flush()
                self.attend(len(self.workers) - 1)
        except (OSError, ValueError, RuntimeError) as error:  # no such program, odd text in a variable, no more threads
            advice = f"Look whether {self.python} is there." if self.python else "Run python -m helpers doctor."
            raise WorkshopError(f"Process {len(self.workers)} could not be started.", str(error), advice) from None
        said = self.leader.stdout.read(1)
        if said != b"+":
            why = (said + self.leader.stdout.read()).decode(errors="replace")
            raise WorkshopError(
                "The processes could not be started.",
                why or "Their guard ended.",
                "Look for room on the disk that holds temporary files.",
            )
        self.ready.set()

    def environment(self) -> dict[str, str]:

        # Another environment gets the helpers, and none of the packages of this one.
        path = str(Path(__file__).resolve().parent.parent) if self.python else import_path()
        changes = {"PYTHONPATH": path}
        changes |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.folder)) | self.variables
        return {name: value for name, value in {**os.environ, **changes}.items() if value is not None}

    def attend(self, number: int) -> None:
        """Start the threads that feed a process, listen to it and wait for its end."""
        worker = self.workers[number]
        steps = (self.feed_and_wait, self.listen, self.listen_to_noise)
        for step in steps:
            thread = threading.Thread(target=step, args=(number, worker), daemon=True)
            thread.start()
            worker.threads.append(thread)

    def feed_and_wait(self, number: int, worker: _Worker) -> None:
        self.ready.wait()
        common, own = self.jobs
        with contextlib.suppress(OSError):  # it has ended already
            worker.process.stdin.write(common + own[number])
            worker.process.stdin.flush()
        worker.process.wait()
        with contextlib.suppress(OSError):
            worker.process.stdin.close()
        worker.said.wait(1)  # what it said last may still be in the pipe
        worker.status = worker.process.returncode
        self.events.put(number)

    def listen(self, number: int, worker: _Worker) -> None:
        with worker.process.stdout as stream:
            while len(header := stream.read(_FRAME.size)) == _FRAME.size:
                kind, length = _FRAME.unpack(header)
                data = stream.read(length)
                if kind == _PRINTED:
                    worker.log.add(data)
                elif kind == _ANSWER:
                    worker.answer += data
                else:
                    worker.done = True
                    worker.said.set()
                    self.events.put(number)
        worker.said.set()

    def listen_to_noise(self, number: int, worker: _Worker) -> None:
        with worker.process.stderr as stream:
            while data := stream.read1(1 << 16):
                (worker.stack or worker.noise).add(data)

    # ---- wait

    def watch(self) -> None:
        """Wait until every process has answered or ended, one has failed, the time is over, or we are interrupted."""
        import queue

        left = set(range(len(self.workers)))
        while left:
            remaining = self.deadline - time.perf_counter()
            if remaining <= 0:
                self.late = sorted(left)
                self.ask_where()
                return
            try:
                number = self.events.get(timeout=min(remaining, 3600))
            except queue.Empty:
                continue
            if number is None:
                return
            left.discard(number)
            worker = self.workers[number]
            if self.check and (not worker.done or "failure" in worker.answered):
                self.first = number
                return

    def ask_where(self) -> None:
        """Let the processes that are late say where they are; faulthandler answers even inside compiled code."""
        if os.name == "nt":
            return
        late = [self.workers[number] for number in self.late]
        for worker in late:
            worker.stack = _Kept()
            worker.process.send_signal(signal.SIGUSR1)
        patience = time.perf_counter() + 0.5
        while time.perf_counter() < patience and not all(_place(str(worker.stack), self.name) for worker in late):
            time.sleep(0.01)

    # ---- end

    def end(self) -> None:
        """End every process of the group, and leave no pipe, no zombie and no file."""
        import shutil

        if self.leader:
            kill(self.leader)  # the whole group; its number is ours until we wait for the leader
            with contextlib.suppress(OSError):
                self.leader.stdin.close()  # now the guard removes the folder, and ends
            self.leader.wait()
        self.ready.set()
        patience = time.perf_counter() + 1
        for worker in self.workers:
            if os.name == "nt":
                kill(worker.process)
            for thread in worker.threads:  # a process that left the group may hold its noise open: until its own end
                thread.join(max(0.1, patience - time.perf_counter()))
        if self.leader:
            with self.leader.stdout as stream:
                stream.read()  # until the guard has ended
            shutil.rmtree(self.folder, ignore_errors=True)


def _guard() -> None:
    """Lead the group, and end it when told to or when the caller is gone; runs alone, as `python -c`."""
    import contextlib
    import os
    import select
    import shutil
    import signal
    import sys
    import time

    folder, caller = sys.argv[1], int(sys.argv[2])
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102 (pathlib would triple the time that the guard needs to start)
    except OSError as error:
        os.write(1, str(error).encode())
        return
    if os.name == "nt":  # no groups there, so the caller names the processes; this branch was never run on Windows
        import subprocess

        os.write(1, b"+")
        for number in sys.stdin.read().split():
            subprocess.run(["taskkill", "/F", "/T", "/PID", number], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        return
    leader = os.getpid()
    if os.fork():  # the leader only keeps the group's number alive, and looks now and then whether the caller lives
        os.close(0)
        os.close(1)
        while os.getppid() == caller:
            time.sleep(1)
        os.killpg(leader, signal.SIGKILL)
    os.setpgid(0, 0)  # the guard, outside of the group
    with contextlib.suppress(OSError):  # the caller is gone already
        os.write(1, b"+")
    while os.getppid() == leader and not select.select([0], [], [], 1)[0]:
        pass
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(20):  # a tenth of a second: grandchildren that are dead may lie there until init collects them
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.killpg(leader, 0)
        except OSError:
            break
        time.sleep(0.005)
    shutil.rmtree(folder, ignore_errors=True)


# --------------------------------------------------------------------------------------------------------------------
# What became of them

_SIGNALS = {
    "SIGKILL": "the system does that when memory runs out",
    "SIGSEGV": "compiled code crashed",
    "SIGBUS": "compiled code crashed",
    "SIGILL": "compiled code uses an instruction that this processor lacks",
    "SIGFPE": "compiled code divided by zero",
    "SIGABRT": "compiled code gave up",
}


def _outcome(crew: _Crew, script: dict[str, Any], limit: float, seconds: float) -> Run:
    """Put together what the processes said, or raise for the first that failed."""
    results, failures = [], []
    for number, worker in enumerate(crew.workers):
        answered = worker.answered if worker.done and number not in crew.late else {}
        results.append(answered.get("result"))
        if number in crew.late:
            failures.append(_lateness(worker, script, limit))
        elif worker.done:
            failures.append(answered.get("failure", ""))
        else:
            failures.append(_death(worker, script))
    logs = [str(worker.log) for worker in crew.workers]
    noise = [str(worker.noise) for worker in crew.workers]
    if crew.check and crew.late:
        raise _too_late(crew.late, len(logs), failures, logs, noise, script["name"], limit)
    if crew.first is not None:
        raise _failed(crew.workers[crew.first], crew.first, failures, logs, noise, script["name"])
    return Run(results, logs, noise, failures, seconds)


def _too_late(
    late: list[int], total: int, failures: list[str], logs: list[str], noise: list[str], name: str, limit: float
) -> WorkshopError:
    which = f" in process {', '.join(map(str, late))} of {total}" if total > 1 else ""
    why = [f"process {one}: {failures[one]}" if total > 1 else failures[one] for one in late[:SHOWN_LINES]]
    why += _last_words(logs[late[0]], noise[late[0]])
    return WorkshopError(
        f"{name} did not end within {limit:g} s{which}.",
        _INDENTED.join(why),
        "Find out what it waits for, or give processes.run more seconds.",
    )


def _failed(
    worker: _Worker, number: int, failures: list[str], logs: list[str], noise: list[str], name: str
) -> WorkshopError:
    total = len(failures)
    why = [*failures[number].splitlines(), *_last_words(logs[number], noise[number])]
    advice = "Mend that, and run the cell again."
    if total > 1:
        advice += " With check=False the other processes go on, and you see what each of them says."
    return WorkshopError(
        f"{name} failed." if total == 1 else f"{name} failed in process {number} of {total}.",
        _INDENTED.join(why),
        (worker.answered.get("next") if worker.done else "") or advice,
    )


_INDENTED = "\n      "  # under WorkshopError's "Why:  "


def _last_words(log: str, noise: str) -> list[str]:
    shown = []
    for title, text in (("It printed last:", log), ("Libraries wrote last:", noise)):
        lines = [line[:300] for line in _told(text, "").splitlines() if line.strip()]
        shown += [title, *("  " + line for line in lines[-SHOWN_LINES:])] if lines else []
    return shown


def _place(text: str, name: str) -> int:
    """The line of the function that a faulthandler dump names first; 0 if it names none."""
    found = re.search(rf'File "{re.escape(_file(name))}", line (\d+)', text)
    return int(found.group(1)) if found else 0


def _line(script: dict[str, Any], number: int) -> str:
    text = script["source"].splitlines()[number - 1].strip() if number else ""
    return f"line {number} of {script['name']}: {text}" if number else ""


def _lateness(worker: _Worker, script: dict[str, Any], limit: float) -> str:
    where = _line(script, _place(str(worker.stack or ""), script["name"]))
    return f"it had not ended after {limit:g} s" + (f"; it was in {where}" if where else "")


def _death(worker: _Worker, script: dict[str, Any]) -> str:
    status = worker.status
    if status is None:
        return "it was ended with the others"
    if status >= 0:
        return f"the process ended with status {status} before the function returned"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    where = _line(script, _place(str(worker.noise), script["name"]))
    hint = f" ({_SIGNALS[name]})" if name in _SIGNALS else ""
    return f"the process was ended by {name}{hint}" + (f"; it was in {where}" if where else "")


# --------------------------------------------------------------------------------------------------------------------
# Inside a process


class _Printed(io.RawIOBase):
    """Sends what is printed to the caller at once, so that nothing is lost when the process is killed."""

    def __init__(self, channel: int) -> None:
        self.channel = channel

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Where a program that is started with this as its output writes: to the noise."""
        return 1

    def write(self, data: bytes) -> int:
        _send(self.channel, _PRINTED, bytes(data))
        return len(data)


def _send(channel: int, kind: bytes, data: bytes) -> None:
    """Write frames so short that the system never mixes those of several threads, or of a fork; no lock is needed."""
    import select

    size = getattr(select, "PIPE_BUF", 512) - _FRAME.size
    for start in range(0, max(len(data), 1), size):
        part = data[start : start + size]
        os.write(channel, _FRAME.pack(kind, len(part)) + part)


def _failure(error: BaseException, script: dict[str, Any]) -> str:
    """The lines of the function in which it happened, where else, and the exception as Python shows it."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename == _file(script["name"])]
    lines = [_line(script, frame.lineno) for frame in ours]
    lines = lines if len(lines) <= 3 else [lines[0], "...", lines[-1]]
    if frames and ours and frames[-1] is not ours[-1]:
        folders = frames[-1].filename.replace("\\", "/").rpartition("site-packages/")[2].split("/")
        lines.append(f"in {'/'.join(folders[-3:])}, line {frames[-1].lineno}, {frames[-1].name}")
    if isinstance(error, WorkshopError):
        said = [str(error)]
    elif isinstance(error, SystemExit):
        said = [f"sys.exit({error.code!r}) ended it before it returned"]
    else:
        said = [line for line in "".join(traceback.format_exception_only(error)).splitlines() if line.strip()]
        said = [line[:300] for line in said[:5]] + ["..."] * (len(said) > 5)
    return "\n".join([*lines, *said])


def _answer(script: dict[str, Any], values: dict[str, Any]) -> bytes:
    """Call the function, and pack what came of it."""
    import inspect
    import linecache
    from types import ModuleType

    name, source = script["name"], script["source"]
    # So that tracebacks, inspect.getsource and TensorFlow's AutoGraph find the source; None: it belongs to no file.
    linecache.cache[_file(name)] = (len(source), None, source.splitlines(keepends=True), _file(name))
    module = sys.modules["__script__"] = ModuleType("__script__")
    try:
        exec(_compiled(name, source, script["flags"])[1], module.__dict__)
        function = getattr(module, name)
        signature = inspect.signature(function)
        given = {one: _loads(packed) for one, packed in script["arguments"].items()}
        given |= {one: value for one, value in values.items() if one in signature.parameters and one not in given}
        bound = inspect.BoundArguments(signature, given)
        result = function(*bound.args, **bound.kwargs)
    except BaseException as error:
        return _dumps({"failure": _failure(error, script)})
    try:
        return _dumps({"result": result})
    except _NotPlain as error:
        failure = f"what {name} returned cannot travel: {error}\nWhat travels is plain data: {PLAIN}."
        return _dumps({"failure": failure, "next": "Return float(x) or numpy.asarray(x), or what you need of it."})


def _leave_no_core_file() -> None:
    """Let a crash leave no file of the process's memory in the caller's folder: some systems write one by default."""
    with contextlib.suppress(ImportError):  # Windows has neither
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _main() -> None:
    """Read the job from standard input, do it, and send what it prints and returns over the first standard output."""
    import faulthandler

    orders, channel = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what compiled code prints is noise
    os.close(nothing)
    with os.fdopen(orders, "rb", closefd=False) as stream:
        try:
            script, values = _Unpickler(stream).load(), _Unpickler(stream).load()
        except EOFError:
            os._exit(1)  # the caller has ended
    _leave_no_core_file()
    faulthandler.enable()
    # A second net, should somebody have killed the guard and the caller: it ends the process whatever code runs then.
    faulthandler.dump_traceback_later(min(script["seconds"] + 10, 1e6), exit=True)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1)
    sys.argv = [script["name"]]
    sys.stdout = io.TextIOWrapper(
        _Printed(channel), encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
    me = os.getpid()
    answer = _answer(script, values)
    if os.getpid() != me:
        os._exit(0)  # a child that the function forked
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _send(channel, _ANSWER, answer)
    _send(channel, _DONE, b"")
    # It stays until all have answered: processes that work together take the loss of one for a failure. Then the whole
    # group is killed, without the frameworks' own tidying up, which is slow and may crash.
    os.read(orders, 1)
    os._exit(0)


if __name__ == "__main__":
    _main()
