"""`python -m helpers COMMAND`: what workshop.py hands over to, and what conda and Binder call directly."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from helpers import commands
from helpers.commands import installed
from helpers.devices.host import Host, command
from helpers.errors import WorkshopError
from helpers.running import workarounds
from helpers.training import backends

USE_KERAS = ("lab", "run", "test", "store")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for something foreseen, 130 for Ctrl-C.

    Args:
        arguments: the command's name and its own arguments; those of the process if None.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("SIGTERM", "SIGHUP"):  # a polite kill or a closed window ends all as Ctrl-C does; nohup still holds
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.default_int_handler)
    try:
        workarounds.ask_for_large_pages()
        workarounds.keep_pocl_on_its_cores()
        workarounds.leave_out_iri_grammar()
        if arguments and arguments[0] not in ("-h", "--help"):
            status = _run(arguments[0], arguments[1:])
        else:
            print(f"usage: {_how_to_call()} COMMAND [...]\n\n{commands.overview()}")
            status = 0 if arguments else 2
        sys.stdout.flush()  # what cannot be written is reported now, not in an exception while Python ends
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
        message = explain(error)
        if message is None:
            raise
        _forget_output()
        print(message, file=sys.stderr)
        return 2


def explain(error: OSError | ImportError) -> WorkshopError | None:
    """Put into words a full disk, a place that cannot be written to or is of another kind, and a package's lost files.

    Returns None for anything else, which is a mistake in the workshop and needs its traceback.
    """
    from helpers.doctor.findings import advise

    host = Host.here()
    if isinstance(error, ImportError):
        module = error.name or ""
        if not module or module.partition(".")[0] == "helpers":
            return None
        if "DLL load failed" in str(error):
            what = f"Windows does not load a library of {module}."
            why = f"It says: {error}. Visual C++'s runtime is missing, or Smart App Control blocks the file."
            return WorkshopError(what, why, advise("visual-c", host))
        why = f"Python says: {error}. An install was interrupted, or files of the environment were deleted."
        return WorkshopError(f"Part of the installation is missing: {module}", why, advise("reinstall", host))
    named = error.filename2 or error.filename  # of a draft and what it should replace, the latter
    place = f" ({named})" if named else ""
    why = f"The system says: {error.strerror}{place}."
    # Where /tmp is full, Python's tempfile says that it found no folder (ENOENT).
    full = error.errno == errno.ENOENT and "temporary directory" in str(error)
    if full or error.errno in (errno.ENOSPC, errno.EDQUOT):
        again = f"Free some space, then look whether it is enough:\n    {command(host, 'doctor')}"
        return WorkshopError("The disk is full.", why, again)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        what = "A place that is needed cannot be written to or read."
        return WorkshopError(what, why, advise("copy-elsewhere", host))
    if error.errno in (errno.EISDIR, errno.ENOTDIR):
        what = "There is a folder where a file is needed, or a file where a folder is."
        return WorkshopError(what, why, "Name another place, then repeat the command.")
    return None


def _forget_output() -> None:
    """Lead standard output nowhere if it takes nothing more, so that Python can end without another complaint."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _Parser(argparse.ArgumentParser):
    """Read the arguments of a command, and report a mistake in them as any other: what, why, next."""

    def error(self, message: str) -> NoReturn:
        name = self.prog.rpartition(" ")[2]
        how = " ".join(self.format_usage().partition(":")[2].split())
        see = f"See what it takes: {_how_to_call(name)} --help"
        raise WorkshopError(f"{name}: {message}", f"It is typed as: {how}", see)


def _how_to_call(name: str = "") -> str:
    """Return how a command is typed here: after `workshop.py`, or in conda and on Binder after `python -m helpers`."""
    return command(Host.here(), name).rstrip()


def _run(name: str, rest: list[str]) -> int:
    commands.check(name, _how_to_call())
    installed.prepare()
    if name in USE_KERAS:
        backends.validate()
    module = commands.load(name)
    packages = f"--accel and --with add packages: {_how_to_call()} --help" if "workshop.py" in _how_to_call() else None
    parser = _Parser(prog=_how_to_call(name), description=commands.COMMANDS[name], epilog=packages, allow_abbrev=False)
    module.add_arguments(parser)
    args, unknown = parser.parse_known_intermixed_args(rest)
    if unknown and not getattr(module, "PASSES_ON", False):
        parser.error(f"unknown arguments: {' '.join(unknown)}")
    args.rest = unknown
    return module.run(args)


if __name__ == "__main__":
    sys.exit(main())
