"""Run a function in one or several fresh processes of this computer, and commands that may hang.

A framework that has started cannot be started differently: another Keras backend, other devices or a second worker need
processes of their own. A lesson shows their script as a function and runs it here:

    def add(a, b):
        import os

        print("process", os.getpid())
        return a + b

    processes.run(add, arguments={"a": 1, "b": 2}).result

The function's source travels, nothing of the notebook's state: what it needs, it imports or receives. It is called with
the given arguments and, if it has parameters of these names, with `process` (its number from 0) and `addresses` (one
free "127.0.0.1:PORT" for each process). What it returns comes back, and must be plain data: an object
of a framework would import that framework here.

A function that no lesson shows needs no source: its name travels, and the process imports it.

    processes.run("helpers.devices.frameworks:answer", arguments={"framework": "jax"})

Nothing outlives a run. At its end, however it comes, the processes are killed with all that they started. They stay in
the caller's process group, so what Jupyter does to a kernel (interrupt, restart, kill) reaches all of them. If the
caller alone is killed, Linux ends them, and on every system they end when the pipe from the caller breaks; what they
had started themselves is left to the group's end.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, Any

from helpers import ROOT
from helpers.errors import WorkshopError
from helpers.measure.tables import SideBySide
from helpers.running.interrupts import finish_despite_interrupts
from helpers.running.worker import PlainUnpickler, Script, explain_not_plain, name_script, read_script

KEPT_BYTES = 100_000  # of each stream are kept from its beginning, and as many from its end
SHOWN_LINES = 8  # of each stream in a message


# --------------------------------------------------------------------------------------------------------------------
# Children of any kind


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment variables for a child that imports what this process would, the helpers among it.

    Args:
        changes: variables to set or, where None, to remove.
    """
    path = [folder for folder in sys.path if folder]
    path += [] if str(ROOT) in path else [str(ROOT)]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(changes or {})}
    return {name: value for name, value in variables.items() if value is not None}


_running: set[subprocess.Popen] = set()


def kill_tree(process: subprocess.Popen) -> None:
    """Kill a process with all that it started, and do not wait for their end; one that has ended is left in peace."""
    import psutil

    if process.poll() is not None:
        return  # its number may be another's by now
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        for member in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                member.kill()


def kill_all() -> None:
    """Kill every process that `run_command` and `run` started and that still runs, with all that it started itself."""
    for process in list(_running):
        kill_tree(process)


# --------------------------------------------------------------------------------------------------------------------
# A command that may hang


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    status: int | None  # its exit status, negative for a signal; None if it was killed because its time was up
    stdout: str  # what it wrote, undecodable bytes replaced
    stderr: str


def run_command(
    command: Sequence[str], timeout: float, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Finished:
    """Run a command; when its time is up, or at Ctrl-C, kill it with all that it started.

    Args:
        command: program and arguments; no shell.
        timeout: seconds.
        env: its environment variables; None for ours.
        folder: where it runs; None for our own.

    Raises:
        OSError: the program cannot be started.
    """
    with subprocess.Popen(
        command,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        _running.add(process)
        status, out, err = None, "", ""
        try:
            out, err = process.communicate(timeout=timeout)
            status = process.returncode
        except subprocess.TimeoutExpired:
            kill_tree(process)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a daemon that it left behind may hold the pipes
                out, err = process.communicate(timeout=2)
        except BaseException:
            kill_tree(process)
            with contextlib.suppress(subprocess.TimeoutExpired):  # at Ctrl-C, `Popen` itself does not wait for the end
                process.wait(2)
            raise
        finally:
            _running.discard(process)
    return Finished(status, out, err)


# --------------------------------------------------------------------------------------------------------------------
# A function in fresh processes


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """How a run ended; every list has one entry for each process."""

    results: list[Any]  # what the function returned; None where it failed
    stdout: list[str]  # what it printed
    stderr: list[str]  # what libraries and warnings wrote
    failures: list[str]  # why it failed; empty where all went well
    seconds: float  # from the call of `run` to the end of the last process

    @property
    def result(self) -> Any:  # noqa: ANN401
        """What the function returned in the first process."""
        return self.results[0]

    def __str__(self) -> str:
        """What one process printed, unchanged; the outputs of several, side by side."""
        return str(self._side_by_side())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._side_by_side()._repr_html_()

    def _side_by_side(self) -> SideBySide:
        texts = []
        for printed, why in zip(self.stdout, self.failures, strict=True):
            texts.append("\n".join(filter(None, [_render_as_shown(printed), why and f"[failed] {why}"])))
        return SideBySide(texts, [f"process {number}" for number in range(len(texts))])


_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _render_as_shown(text: str) -> str:
    """Return a text as a terminal would leave it: without colors, of a progress line the last state."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in _COLORS.sub("", text).split("\n")]
    return "\n".join(lines).rstrip("\n")


def run(
    function: Callable[..., Any] | str,
    processes: int = 1,
    seconds: float = 120.0,
    variables: Mapping[str, str | None] | None = None,
    check: bool = True,
    python: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Run:
    """Call a function in fresh Python processes and bring back what it returned and printed.

    Args:
        function: written with `def`; it imports what it uses, and may have parameters `process` and `addresses`. Or
            the name of one that the processes import, such as "helpers.judge.checks:judge".
        processes: how many; each runs the same function.
        seconds: for all of it; when they are over, the processes are killed.
        variables: environment variables to set, or to remove (None), for the processes.
        check: whether the first failure ends all and raises. Without it the other processes go on, and the failures
            are in the result.
        python: the Python that runs it, 3.11 or newer, from another environment, whose packages alone it then has
            (lesson 06b); this one if None.
        arguments: for the function, by name. Like what it returns, they are plain data: None, numbers, text, bytes,
            lists, tuples, dictionaries, sets, NumPy arrays. Objects of a framework are refused. A function among them
            travels with what it uses (helpers/running/sources.py).

    Raises:
        WorkshopError: the function cannot be run like this, or (with `check`) a process failed or the time is over.
        KeyboardInterrupt: as pressed; the processes are killed then.
    """
    # Another environment gets the helpers, and none of the packages of this one.
    changes: dict[str, str | None] = {"PYTHONPATH": str(ROOT)} if python else {}
    changes |= variables or {}
    plain, functions = dict(arguments or {}), {}
    for name in [name for name, value in plain.items() if inspect.isroutine(value)]:
        functions[name] = plain.pop(name)
    script = name_script(function) if isinstance(function, str) else read_script(function, functions)
    job = _Job(script, processes, seconds, changes, check, python or sys.executable, plain)
    return finish_despite_interrupts(job.run)


@dataclass(frozen=True)
class _Job:
    """What one call of `run` asks for."""

    script: Script
    processes: int
    seconds: float
    changes: Mapping[str, str | None]  # of the environment variables
    check: bool
    python: str
    arguments: Mapping[str, Any]

    def run(self, stop: threading.Event) -> Run:
        """Start the processes, wait for them, and end them, however the waiting comes to its end."""
        import tempfile

        start, workers = time.perf_counter(), []
        with tempfile.TemporaryDirectory(prefix="anygpu-", ignore_cleanup_errors=True) as folder:
            own = environment({**dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder), **self.changes})
            try:
                self._write(Path(folder))
                for number in range(self.processes):
                    workers.append(_Worker(number, Path(folder), self.script, self.python, own))
                _wait(workers, start, self.seconds, self.check, stop)
            finally:
                _end(workers)
        if self.check and any(worker.failure for worker in workers):
            raise _make_error(workers, self.script.name, self.seconds)
        return Run(
            [worker.result for worker in workers],
            [str(worker.stdout) for worker in workers],
            [str(worker.stderr) for worker in workers],
            [worker.failure for worker in workers],
            time.perf_counter() - start,
        )

    def _write(self, folder: Path) -> None:
        """Write what every process reads: (script, addresses, seconds) and the arguments."""
        with (folder / "job").open("wb") as file:
            pickle.dump((astuple(self.script), _free_addresses(self.processes), self.seconds), file)
            try:
                pickle.dump(dict(self.arguments), file, protocol=5)
            except Exception as error:
                raise WorkshopError(
                    f"The arguments of {self.script.name} cannot be sent to another process.",
                    str(error),
                    "Pass numbers, text, lists and NumPy arrays, and build the rest inside the function.",
                ) from None


def _free_addresses(number: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{bound.getsockname()[1]}" for bound in sockets]


class _Output(threading.Thread):
    """Reads what a process writes; of a long output it keeps the beginning and the end."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        assert isinstance(stream, io.BufferedReader)  # a pipe's end
        self.stream, self.kept, self.left_out = stream, bytearray(), 0
        self.start()

    def run(self) -> None:
        with self.stream:
            while data := self.stream.read1(1 << 16):
                self.kept += data
                if (more := len(self.kept) - 2 * KEPT_BYTES) > KEPT_BYTES:
                    del self.kept[KEPT_BYTES:-KEPT_BYTES]
                    self.left_out += more

    def __str__(self) -> str:
        if not self.left_out:
            return self.kept.decode(errors="replace")
        begin, end = (part.decode(errors="ignore") for part in (self.kept[:KEPT_BYTES], self.kept[KEPT_BYTES:]))
        return f"{begin}\n[... {self.left_out:,} bytes left out ...]\n{end}"


class _Worker:
    """A process that runs the function, seen from the caller."""

    def __init__(self, number: int, folder: Path, script: Script, python: str, variables: dict[str, str]) -> None:
        self.number, self.script = number, script
        self.answer, self.stack = folder / f"answer-{number}", folder / f"stack-{number}"
        self.result: Any = None
        self.failure = ""
        self.over = False  # it has answered or ended
        self.late = False  # the time was over before it did
        command = [python, "-P", "-u", "-m", "helpers.running.worker", str(folder), str(number)]
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe)
        except (OSError, ValueError, TypeError) as error:  # no such program, a variable that is no text
            advice = f'Look whether {python} is there. Variables are text: {{"NAME": "1"}}.'
            raise WorkshopError(f"Process {number} could not be started.", str(error), advice) from None
        _running.add(self.process)
        assert self.process.stdin  # a pipe, as the other two
        self.stdin = self.process.stdin
        self.stdout, self.stderr = _Output(self.process.stdout), _Output(self.process.stderr)

    def look(self) -> None:
        """Take its answer or note its end, if there is one by now."""
        status = self.process.poll()  # asked first: it may answer meanwhile
        if self.answer.exists():
            self.over = True
            try:
                with self.answer.open("rb") as file:
                    self.result, self.failure = PlainUnpickler(file).load()
            except Exception as error:
                self.failure = explain_not_plain(f"what {self.script.name} returned", error)
        elif status is not None:
            self.over, self.failure = True, f"the process {_describe_exit(status)}{self.find_line()}"

    def find_line(self) -> str:
        """Return in which line of the function faulthandler saw it; empty if it did not, or no source has travelled."""
        dump = self.stack.read_text(errors="replace") if self.stack.exists() else ""
        found = re.search(rf'File "{re.escape(self.script.file)}", line (\d+)', dump)
        return f"; it was in {self.script.line(int(found.group(1)))}" if found else ""


def _wait(workers: list[_Worker], start: float, seconds: float, check: bool, stop: threading.Event) -> None:
    """Wait until every process has answered or ended, (with `check`) one has failed, the time is over, or `stop`."""
    while left := [worker for worker in workers if not worker.over]:
        for worker in left:
            worker.look()
        if (check and any(worker.failure for worker in workers)) or stop.wait(0.01):
            return
        if time.perf_counter() - start > seconds:
            break
    late = [worker for worker in workers if not worker.over]
    for worker in late:
        worker.late = True
        if os.name != "nt":
            worker.process.send_signal(signal.SIGUSR1)  # faulthandler says where it is, even inside compiled code
    patience = time.perf_counter() + 0.5
    readable = [worker for worker in late if worker.script.source]
    while time.perf_counter() < patience and not all(worker.find_line() for worker in readable):
        time.sleep(0.01)
    for worker in late:
        worker.failure = f"it had not ended after {seconds:g} s{worker.find_line()}"


def _end(workers: list[_Worker]) -> None:
    """Kill every process, and leave no pipe and no zombie."""
    for worker in workers:
        kill_tree(worker.process)
        _running.discard(worker.process)
    for worker in workers:
        worker.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold a dead process for a while
            worker.process.wait(5)
        worker.stdout.join(1)  # a daemon that it left behind may hold the pipes
        worker.stderr.join(1)


def _describe_exit(status: int) -> str:
    """Say how a process ended, by its exit status, which is negative for a signal.

    >>> _describe_exit(3)
    'ended with status 3 before the function returned'
    """
    if status >= 0:
        return f"ended with status {status} before the function returned"
    name = {int(known): known.name for known in signal.Signals}.get(-status, f"signal {-status}")
    why = {
        "SIGKILL": " (the system does that when memory runs out)",
        "SIGILL": " (compiled code uses an instruction that this processor lacks)",
        **dict.fromkeys(("SIGSEGV", "SIGBUS", "SIGFPE", "SIGABRT"), " (compiled code crashed)"),
    }
    return f"was ended by {name}{why.get(name, '')}"


def _make_error(workers: list[_Worker], name: str, seconds: float) -> WorkshopError:
    """Put the failures into words: all that are late, otherwise the first."""
    late = [worker for worker in workers if worker.late]
    shown = late or [worker for worker in workers if worker.failure][:1]
    what = f"{name} did not end within {seconds:g} s" if late else f"{name} failed"
    if len(workers) > 1:
        what += f" in process {', '.join(str(worker.number) for worker in shown)} of {len(workers)}"
    why = []
    for worker in shown[:SHOWN_LINES]:
        why += (f"process {worker.number}: {worker.failure}" if len(shown) > 1 else worker.failure).splitlines()
    for title, text in (("It printed last:", shown[0].stdout), ("Libraries wrote last:", shown[0].stderr)):
        lines = [line[:300] for line in _render_as_shown(str(text)).splitlines() if line.strip()]
        why += [title, *("  " + line for line in lines[-SHOWN_LINES:])] if lines else []
    advice = "Find out what it waits for, or give processes.run more seconds."
    if not late:
        advice = "Fix that, and run the cell again."
        if len(workers) > 1:
            advice += " With check=False the other processes go on, and you see what each of them says."
    return WorkshopError(f"{what}.", "\n      ".join(why), advice)  # indented under "Why:  "
