"""Gather the source of functions from a notebook, with all that they use, so that a fresh process can define them."""

from __future__ import annotations

import builtins
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, ModuleType

from helpers.errors import WorkshopError

HERE = ("__main__", "__script__")  # the modules that no other process can import


def read_source(function: Callable[..., object]) -> str:
    """Return the source of a function, dedented; empty if there is none that begins with `def` or a decorator."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    return source if source.startswith(("def ", "@")) else ""


def gather_sources(functions: Mapping[str, Callable[..., object]]) -> str:
    """Return the source that defines functions under the given names, and before them what they use.

    Functions of a notebook travel as their source, those of a module as an import.

    Raises:
        WorkshopError: a function uses something of the notebook that is neither a module, a function, nor plain.
    """
    gathered: dict[str, str] = {}
    for name, function in functions.items():
        _gather(name, function, gathered)
    return "".join(f"{source}\n\n" for source in gathered.values())


def _gather(name: str, value: object, gathered: dict[str, str]) -> None:
    """Add to `gathered` the source that gives `name` this value, after the sources of what it uses."""
    if name in gathered:
        return
    module = getattr(value, "__module__", None)
    if isinstance(value, ModuleType):
        gathered[name] = f"import {value.__name__} as {name}"
    elif inspect.isfunction(value) and module in HERE:
        gathered[name] = ""  # a function may call itself
        for used in sorted(set(_list_globals(value.__code__))):
            if used in value.__globals__:
                _gather(used, value.__globals__[used], gathered)
            elif not hasattr(builtins, used):
                raise _refuse(used)
        source = read_source(value)
        if not source or value.__closure__:
            raise WorkshopError(f"`{name}` cannot be sent to another process.", "", "Write it with `def`, in a cell.")
        source += "" if value.__name__ == name else f"\n{name} = {value.__name__}\n"
        del gathered[name]  # it comes after what it uses
        gathered[name] = source
    elif (inspect.isroutine(value) or inspect.isclass(value)) and module and module not in HERE:
        gathered[name] = f"from {module} import {getattr(value, '__name__', name)} as {name}"
    elif isinstance(value, int | float | str | None):
        gathered[name] = f"{name} = {value!r}"
    else:
        raise _refuse(name)


def _refuse(name: str) -> WorkshopError:
    return WorkshopError(
        f"It uses `{name}` of this notebook, which no other process has.", "Define it inside of the function."
    )


def _list_globals(code: CodeType) -> Iterator[str]:
    """Yield the global names that some code reads, and the functions and comprehensions inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_globals(constant)
