"""What runs inside a fresh process of `processes.run`: read the job, call the function, write the answer, wait.

python -m helpers.running.worker FOLDER NUMBER
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from helpers.errors import WorkshopError


@dataclass(frozen=True)
class Script:
    """A function as it travels: its source, or the name of the module that has it."""

    name: str
    source: str
    module: str = ""  # from which the fresh process imports it; no source travels then
    functions: tuple[str, ...] = ()  # arguments that the source defines, by name

    @property
    def file(self) -> str:
        """The name under which the source appears in tracebacks."""
        return f"<{self.name}>"

    def line(self, number: int) -> str:
        """Return one line of the source with its number, from 1."""
        return f"line {number} of {self.name}: {self.source.splitlines()[number - 1].strip()}"

    def define(self) -> Callable[..., Any]:
        """Import the function, or define it in a module of its own; tracebacks and AutoGraph find its source."""
        import __future__

        import importlib
        import linecache
        from types import ModuleType

        if self.module:
            return getattr(importlib.import_module(self.module), self.name)
        linecache.cache[self.file] = (len(self.source), None, self.source.splitlines(keepends=True), self.file)
        # Annotations stay text: they may use names that only the caller has.
        code = compile(self.source, self.file, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
        module = sys.modules["__script__"] = ModuleType("__script__")
        exec(code, module.__dict__)
        return getattr(module, self.name)


def name_script(place: str) -> Script:
    """Return the function that "module:function" names, for a process that imports it."""
    module, colon, name = place.partition(":")
    if not colon:
        raise ValueError(f'{place!r} names no function; write "module:function"')
    return Script(name, "", module)


def read_script(function: Callable[..., Any], given: Mapping[str, Callable[..., Any]]) -> Script:
    """Return a function with its source, dedented, after the sources of the functions among its arguments."""
    from helpers.running import sources

    name = getattr(function, "__name__", repr(function))
    source = sources.read_source(function)
    if not source:
        raise WorkshopError(
            f"The source of {name} cannot be found.",
            "The fresh process gets the source of a function written with def, not of one typed into python -c, or in "
            "a cell with a magic such as %%time.",
            "Define it in a cell of its own, or in a file.",
        )
    return Script(name, sources.gather_sources(given) + source, functions=tuple(given))


def explain_not_plain(what: str, error: Exception) -> str:
    """Say for a learner that an argument or a result is no plain data, and what is."""
    return f'{what} is not plain data: {error}\nPlain data are such as float(x), or numpy.asarray(x, "float32").'


# What rebuilds plain data: of Python, and of NumPy's arrays, their elements and their types.
REBUILT = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "numpy": {"dtype", "ndarray"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
}


class PlainUnpickler(pickle.Unpickler):
    """Reads plain data alone: an object of a framework would import the framework into the process that reads it."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Return what rebuilds a value that is more than numbers, text and containers."""
        known = module.replace("numpy._core", "numpy.core")  # PlaidML's NumPy 1 and ours call it differently
        if name not in REBUILT.get(known, ()):
            raise pickle.UnpicklingError(f"it holds something of {module.partition('.')[0]} ({module}.{name})")
        try:
            return super().find_class(known.replace("numpy.core", "numpy._core"), name)
        except ModuleNotFoundError:
            return super().find_class(known, name)


def _end_with_the_caller() -> threading.Thread:
    """End this process when the pipe from the caller breaks; the thread that sees to it runs until then."""
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait() -> None:
        os.read(pipe, 1)
        os._exit(1)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    if sys.platform == "linux":  # at once, and even where compiled code never lets a thread run
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    return thread


def _describe_failure(error: BaseException, script: Script) -> str:
    """Say in which lines of the function it happened, where else, and show the exception as Python does."""
    import traceback

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    lines = [script.line(frame.lineno) for frame in frames if frame.filename == script.file and frame.lineno][-2:]
    if frames and frames[-1].filename != script.file:
        folders = frames[-1].filename.replace("\\", "/").split("/")
        lines.append(f"in {'/'.join(folders[-3:])}, line {frames[-1].lineno}, {frames[-1].name}")
    if isinstance(error, WorkshopError):
        lines.append(str(error))
    else:
        text = [line[:300] for line in "".join(traceback.format_exception_only(error)).splitlines() if line.strip()]
        lines += text if len(text) <= 5 else [*text[:5], "..."]
    if type(error) is NameError:
        lines.append("A fresh process has nothing of this notebook: import inside the function, or pass arguments.")
    return "\n".join(lines)


def _pack_answer(script: Script, given: dict[str, Any], job: IO[bytes]) -> bytes:
    """Call the function, and pack (what it returned, why it failed)."""
    import inspect

    try:
        arguments = PlainUnpickler(job).load()
    except Exception as error:
        return pickle.dumps((None, explain_not_plain(f"an argument of {script.name}", error)))
    try:
        function = script.define()
        wanted = inspect.signature(function).parameters
        arguments |= {name: getattr(sys.modules["__script__"], name) for name in script.functions}
        result = function(**{name: value for name, value in given.items() if name in wanted} | arguments)
    except BaseException as error:
        return pickle.dumps((None, _describe_failure(error, script)))
    try:
        return pickle.dumps((result, ""), protocol=5)
    except Exception as error:
        return pickle.dumps((None, explain_not_plain(f"what {script.name} returned", error)))


def _main(folder: Path, number: int) -> None:
    """Do the job in the folder, write the answer beside it, and wait to be killed."""
    import faulthandler

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a notebook's interrupt goes to its whole group: the caller ends us
    caller = _end_with_the_caller()
    with contextlib.suppress(ImportError):  # a crash leaves no core file in the caller's folder; Windows has none
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)  # as Python starts; a notebook's are others
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    with (folder / "job").open("rb") as job, (folder / f"stack-{number}").open("wb") as stack:
        script, addresses, seconds = pickle.load(job)
        script = Script(*script)
        faulthandler.enable(stack)
        faulthandler.dump_traceback_later(min(seconds + 10, 1e6), exit=True, file=stack)  # should all else fail
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, stack)
        sys.argv = [script.name]
        answer = _pack_answer(script, {"process": number, "addresses": addresses}, job)
        new = folder / f"new-{number}"
        new.write_bytes(answer)
        new.replace(folder / f"answer-{number}")
        # It stays until all have answered: processes that work together take the loss of one for a failure. Then it is
        # killed, without the frameworks' own tidying up, which is slow and may crash.
        caller.join()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
