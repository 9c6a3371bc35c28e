"""`python -m helpers COMMAND`: what workshop.py hands over to, and what conda and Binder call directly."""

from __future__ import annotations

import argparse
import atexit
import difflib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from helpers import ROOT, commands
from helpers.errors import WorkshopError
from helpers.machine.host import Host, command, copy_elsewhere, reinstall

# Keras 3 has two backends more, numpy and openvino, but they cannot train.
BACKENDS = ("tensorflow", "jax", "torch")
USE_KERAS = ("lab", "run", "test", "store")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for something foreseen, 130 for Ctrl-C.

    Args:
        arguments: the command's name and its own arguments; those of the process if None.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        keep_caches_elsewhere()
        ask_for_large_pages()
        keep_pocl_on_its_cores()
        if arguments and arguments[0] not in ("-h", "--help"):
            status = _run(arguments[0], arguments[1:])
        else:
            print(overview())
            status = 0 if arguments else 2
        sys.stdout.flush()  # what cannot be written is told now, not in an exception while Python ends
        return status
    except WorkshopError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output, such as `head`, has enough
        _forget_output()
        return 1
    except (OSError, ImportError) as error:
        said = in_words(error)
        if said is None:
            raise
        _forget_output()
        print(said, file=sys.stderr)
        return 2


def keep_caches_elsewhere() -> None:
    """Give compilers and libraries another place for their caches where the home folder cannot be written to.

    PoCL without such a place has no platform at all, and IPython and Matplotlib complain in every lesson. The place is
    beside the packages if those are the workshop's own, or else a folder that lasts as long as this process.
    """
    if _can_write(_cache_folder()):
        return
    folder = Path(sys.prefix, "var", "cache")
    if not (folder.resolve().is_relative_to(ROOT) and _can_write(str(folder))):
        folder = Path(tempfile.mkdtemp(prefix="workshop-cache-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_CACHE_HOME"] = str(folder)  # unset, or of no use
    for variable, name in (("POCL_CACHE_DIR", "pocl"), ("IPYTHONDIR", "ipython"), ("MPLCONFIGDIR", "matplotlib")):
        (folder / name).mkdir(exist_ok=True)
        os.environ.setdefault(variable, str(folder / name))


def ask_for_large_pages() -> None:
    """Let the lessons' kernels take memory from Linux in pages of 2 MiB where it has them, instead of 4 KiB.

    A network's temporary arrays come and go at every step, and in a virtual machine each page costs a fault that takes
    longer than filling it: JAX trained lesson 05's network in 0.52 of the time with large pages. glibc reads the
    variable when a process starts; elsewhere it means nothing.
    """
    if sys.platform == "linux":
        os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")


def keep_pocl_on_its_cores() -> None:
    """Let PoCL keep each of its threads on a core of its own, where this process may use all cores.

    Left to the system two threads may share a core while another one idles: on two cores up to a third of the matrix
    products in lesson 02 took twice as long, and none with this. PoCL reads the variable when it starts, other drivers
    do not know it. A process that was given some cores alone must not take others.
    """
    if sys.platform == "linux" and os.sched_getaffinity(0) == set(range(os.cpu_count() or 1)):
        os.environ.setdefault("POCL_AFFINITY", "1")


def _cache_folder() -> str:
    """Return where programs keep their caches, empty where there is no home folder."""
    home = os.path.expanduser("~")  # noqa: PTH111  (Path.home() raises where there is none)
    if home.startswith("~"):
        home = ""
    if os.name == "nt":
        return home
    return os.environ.get("XDG_CACHE_HOME") or (home and os.path.join(home, ".cache"))  # noqa: PTH118  (text, as above)


def _can_write(folder: str) -> bool:
    """Say whether files can be made in a folder, by making one; the folder is made if it is not there."""
    try:
        Path(folder or os.devnull).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def overview() -> str:
    """Return the list of all commands, one line each."""
    lines = [f"  {name:<12} {text}" for name, text in commands.COMMANDS.items()]
    head = "usage: python -m helpers COMMAND [...]\n\nThe commands (COMMAND --help says more about one):\n"
    return head + "\n".join(lines)


def in_words(error: OSError | ImportError) -> WorkshopError | None:
    """Put into words a full disk, a place that cannot be written to, and files of a package that are gone.

    Anything else is a mistake in the workshop, for which this returns None: it needs its traceback.
    """

    host = Host.here()
    if isinstance(error, ImportError):
        module = error.name or ""
        if not module or module.partition(".")[0] == "helpers":
            return None
        why = f"Python says: {error}. An install was interrupted, or files of the environment were deleted."
        return WorkshopError(f"Part of the installation is missing: {module}", why, reinstall(host))
    place = f" ({error.filename})" if error.filename else ""
    why = f"The system says: {error.strerror}{place}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        again = f"Free some space, then look whether it is enough:\n    {command(host, 'doctor')}"
        return WorkshopError("The disk is full.", why, again)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WorkshopError("A place that is needed cannot be written to or read.", why, copy_elsewhere(host))
    return None


def _forget_output() -> None:
    """Lead standard output nowhere if it takes nothing more, so that Python can end without another complaint."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _run(name: str, rest: list[str]) -> int:
    if name not in commands.COMMANDS:
        close = difflib.get_close_matches(name, commands.COMMANDS, n=1)
        raise WorkshopError(
            f"There is no command called {name!r}.",
            f"The commands are {', '.join(commands.COMMANDS)}.",
            f"Did you mean: {close[0]}" if close else "See them all: python -m helpers --help",
        )
    if name in USE_KERAS:
        check_keras_backend(os.environ.get("KERAS_BACKEND", ""))
    module = commands.load(name)
    parser = argparse.ArgumentParser(
        prog=f"python -m helpers {name}", description=commands.COMMANDS[name], allow_abbrev=False
    )
    module.add_arguments(parser)
    args, unknown = parser.parse_known_args(rest)
    if unknown and not getattr(module, "PASSES_ON", False):
        parser.error(f"unknown arguments: {' '.join(unknown)}")
    args.rest = unknown
    return module.run(args)


def check_keras_backend(name: str) -> None:
    """Refuse a KERAS_BACKEND that no lesson can train with; empty means unset.

    Raises:
        WorkshopError: there is no such backend, or it cannot train.
    """
    if name and name not in BACKENDS:
        raise WorkshopError(
            f"KERAS_BACKEND is {name!r}, and no lesson can train with that.",
            f"The lessons train with one of {', '.join(BACKENDS)}.",
            "Unset KERAS_BACKEND, or set it to one of these.",
        )


if __name__ == "__main__":
    sys.exit(main())
